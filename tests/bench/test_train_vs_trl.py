"""The arithmetic of the bench beside TRL; its children are run by the bench itself."""

from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def bench(script) -> ModuleType:
    """The script as a module."""
    return script("train_vs_trl")


@pytest.fixture(scope="module")
def rounds(script) -> ModuleType:
    """What both training benches share, as a module."""
    return script("rounds")


@pytest.fixture(scope="module")
def job(script) -> ModuleType:
    """What the two sides are told, as a module."""
    return script("sft.job")


def result(rate: float, peak: float, loss: float = 2.0, rows: tuple[int, ...] = (0, 1)) -> dict:
    """What a child prints."""
    return {
        "tokens_per_second": rate,
        "peak_bytes": peak,
        "first_loss": loss,
        "first_trained": 30,
        "first_rows": list(rows),
    }


def test_the_last_line_of_a_child_is_its_result(rounds):
    assert rounds.result_of('loading\n{"noise": 1}\n{"first_loss": 2.5}\n\n') == {"first_loss": 2.5}


@pytest.mark.parametrize("text", ["", "Killed\n", '{"first_loss": 2.5}\nTraceback\n', "[1]\n"])
def test_a_child_without_a_result_is_refused(rounds, text):
    with pytest.raises(ValueError, match="no JSON object in the last line"):
        rounds.result_of(text)


def test_contenders_run_in_turn_and_every_second_round_backwards(rounds):
    calls = []
    runs = {name: lambda name=name: calls.append(name) or {"n": len(calls)} for name in "abc"}
    results = rounds.in_turn(runs, 3, say=lambda text: None)
    assert calls == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert results["b"] == [{"n": 2}, {"n": 5}, {"n": 8}]


def test_the_median_is_of_the_rounds(rounds):
    results = [{"seconds": value} for value in (9.0, 1.0, 2.0)]
    assert rounds.median_of(results, "seconds") == 2.0


def test_trl_counts_with_its_fastest_and_with_the_memory_of_that_one(bench):
    results = {
        ("hashtune", "unpacked"): [result(300, 70), result(900, 90), result(310, 80)],
        ("TRL", "packed"): [result(150, 10), result(152, 10), result(151, 10)],
        ("TRL", "micro4"): [result(100, 160), result(200, 140), result(201, 160)],
    }
    assert bench.fastest(results, "TRL") == ("TRL", "micro4")
    assert bench.verdict(results) == "speed 1.55x memory 0.50x"  # 310 / 200 and 80 / 160


def test_losses_that_agree_with_the_reference_have_no_fault(bench):
    results = {("hashtune", "unpacked"): [result(1, 1, 2.004)], ("TRL", "packed"): [result(1, 1)]}
    assert bench.faults(results, {(0, 1): (2.0, 30)}) == []


def test_each_loss_that_differs_is_named(bench):
    results = {
        ("hashtune", "unpacked"): [result(1, 1, 2.0), result(1, 1, 2.02)],
        ("TRL", "packed"): [result(1, 1, float("nan"), (2,))],
    }
    assert bench.faults(results, {(0, 1): (2.0, 30), (2,): (3.0, 30)}) == [
        "hashtune unpacked, round 2: first-step loss 2.02000, plain loop on the same rows 2.00000",
        "TRL packed, round 1: first-step loss nan, plain loop on the same rows 3.00000",
    ]


def test_another_number_of_trained_tokens_is_a_fault_whatever_the_loss(bench):
    results = {("TRL", "unpacked"): [result(1, 1)]}
    assert bench.faults(results, {(0, 1): (2.0, 31)}) == [
        "TRL unpacked, round 1: 30 trained tokens, the same rows have 31"
    ]


@pytest.mark.parametrize(
    ("layout", "micro", "accumulation"),
    [("packed", 1, 1), ("unpacked", 1, 4), ("micro4", 4, 1), ("grouped", 4, 1)],
)
def test_each_layout_has_its_split_of_a_step(job, layout, micro, accumulation):
    assert job.LAYOUTS[layout] == (micro, accumulation)


def test_grouped_rows_are_neighbours_in_length_and_only_whole_groups_move(job):
    lengths = [5, 80, 6, 81, 7, 82, 8, 83]
    order = job.order(lengths, "grouped")
    assert sorted(map(sorted, (order[:4], order[4:]))) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert job.order(lengths, "unpacked") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_rates_leave_the_warm_up_out(job):
    ends = [(1.0, 10.0), (3.0, 11.0), (5.0, 18.0)]  # seconds, CPU seconds at the end of each step
    assert job.rates(ends, [999, 100, 60], warmup=1) == {
        "tokens_per_second": 40.0,  # 160 tokens in 4 s
        "tokens_per_cpu_second": 20.0,  # in 8 CPU seconds
    }


@pytest.mark.parametrize("child", ["sft.rows", "sft.ours", "lab"])
def test_our_children_follow_the_project(script, child):
    """They name functions and fields of the spec, and only the bench runs them."""
    assert callable(script(child).main)


def test_device_and_length_reach_every_side(bench, job):
    given = ["rows.jsonl", "--base", "b", "--device", "cuda", "--max-length", "8192"]
    told = job.read_job(bench.job_of(bench.arguments(given), "rows.json", "packed").text())
    assert (told.device, told.max_length, told.base, told.layout) == ("cuda", 8192, "b", "packed")
    default = bench.job_of(bench.arguments(["rows.jsonl", "--base", "b"]), "rows.json", "pairs")
    assert (default.device, default.max_length) == ("cpu", 1024)


def test_another_device_is_refused(bench, capsys):
    with pytest.raises(SystemExit):
        bench.arguments(["rows.jsonl", "--base", "b", "--device", "tpu"])
    assert "--device" in capsys.readouterr().err


def test_on_a_gpu_the_clock_waits_and_memory_is_what_was_allocated(rounds, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("waited"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7)
    assert (rounds.memory("cuda"), waited) == (7, [])
    wall, cpu = rounds.clocks("cuda")
    assert waited == ["waited"]
    assert rounds.clocks("cpu") > (wall, cpu)
    assert waited == ["waited"]
    assert rounds.memory("cpu") > 1_000_000
