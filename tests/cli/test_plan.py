"""hashtune plan: which card for a base, and the plan of this checkout; no torch, no network."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hashtune import writers
from hashtune.cli.commands import parser
from hashtune.cli.plan import REPORT, run
from hashtune.cli.plan_question import ask, question
from hashtune.errors import InputError
from hashtune.memory.chart import BLOCKS

ROOT = Path(__file__).parents[2]
SEVENTY = ("--model", "llama-3.1-70b", "--method", "qlora", "--seq", "4096")


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(parser().parse_args(["plan", *arguments, "--json"])) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusals(*arguments: str) -> list[tuple[str, str | None]]:
    with pytest.raises(InputError) as caught:
        run(parser().parse_args(["plan", *arguments]))
    return [(finding.rule, finding.field) for finding in caught.value.findings]


def test_which_card_for_70b(capsys: pytest.CaptureFixture[str]) -> None:
    """35.4 GB of NF4 weights and 8.4 GB of fp32 embedding and head: none below 80 GB. Without
    checkpointing none at all."""
    report = answer(capsys, *SEVENTY, "activations=full")
    assert report["model"]["parameters"] == 70_553_706_496
    fitting = {card["name"] for card in report["cards"] if card["fits"]}
    assert fitting == {"a100_80", "h100", "h200"}
    assert report["hardware"] == report["cheapest_card"]
    assert report["settings"] == [
        *("method=qlora", "data.max_seq_len=4096", "precision=bf16", "activations=full"),
    ]
    report = answer(capsys, *SEVENTY)
    assert report["cheapest_card"] is None
    assert report["hardware"] == "h100"  # a third of an A100's hours at twice its price
    assert report["enough_together"] == ["activations=full"]


def test_the_answer_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parser().parse_args(["plan", *SEVENTY])) == 0
    text = capsys.readouterr().out
    assert "llama-3.1-70b (70B): 70,553,706,496 parameters, meta-llama/Llama-3.1-70B" in text
    assert "fits none with a price as it is; h100 with activations=full; h200 with" in text
    assert "on h100, does not fit:" in text
    assert text.isascii()  # not a terminal
    assert "\x1b" not in text


def test_one_machine_and_its_precision(capsys: pytest.CaptureFixture[str]) -> None:
    report = answer(
        *(capsys, "--model", "llama-3.2-1b", "--seq", "512", "--micro", "2"),
        *("--hardware", "t4", "precision=fp16", "optim=adamw_8bit"),
    )
    assert (report["hardware"], report["precision"]) == ("t4", "fp16")
    assert report["micro_batch"]["rows"] == 2
    assert "hardware=t4" in report["settings"]


def test_a_config_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = json.loads(
        (ROOT / "src/hashtune/memory/known/qwen3-4b.json").read_text(encoding="utf-8")
    )
    (tmp_path / "config.json").write_text(json.dumps(known["config"]), encoding="utf-8")
    report = answer(capsys, "--model", str(tmp_path), "--seq", "1024")
    assert report["model"]["parameters"] == 4_022_468_096


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = refusals(
        *("--model", "llama-3.1-8", "--seq", "0", "--micro", "-1", "--hardware", "h10"),
        *("--method", "qlora", "method=lora"),
    )
    assert found == [
        *[("bad-count", "--seq"), ("bad-count", "--micro"), ("usage", "--hardware")],
        *[("no-model", "--model"), ("contradiction", "method=qlora")],
    ]


def test_a_count_below_1_is_told_once() -> None:
    assert refusals("--model", "llama-3.2-1b", "--seq", "-5") == [("bad-count", "--seq")]


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("a100", "did you mean 'a100_40' or 'a100_80'?"),
        ("4090", "did you mean 'rtx4090'?"),
        ("NVIDIA-H100", "did you mean 'h100'?"),
        ("h10", "did you mean 'h100'?"),
    ],
)
def test_a_machine_by_part_of_its_name(named: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        run(parser().parse_args(["plan", "--model", "llama-3.2-1b", "--hardware", named]))
    (finding,) = caught.value.findings
    assert meant in finding.message


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("optim=adamw_8bits",), "compose"),
        (("method.rank=8",), "compose"),
        (("optim.lr=fast",), "schema"),
        (("--hardware", "cpu", "optim=paged_adamw_8bit"), "cuda-only"),
        (("--hardware", "t4"), "no-unit"),
    ],
)
def test_a_bad_setting_is_refused(arguments: tuple[str, ...], rule: str) -> None:
    assert refusals("--model", "llama-3.2-1b", "--seq", "64", *arguments)[0][0] == rule


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (("--seq", "131073"), ("too-long", "data.max_seq_len")),  # the base has 131,072 positions
        (("--seq", "1000000000000"), ("bad-count", "--seq")),
        (("--micro", "1000000"), ("bad-count", "--micro")),
        (("batch.micro=1000000",), ("bad-count", "batch.micro")),
        (("--tokens", "1" + "0" * 25), ("bad-count", "--tokens")),
        (("--gpus", "1000000", "--sharding", "fsdp"), ("bad-count", "--gpus")),
        (("method.r=4096",), ("bad-rank", "method.r")),
    ],
)
def test_what_no_base_or_machine_has_is_refused(
    arguments: tuple[str, ...], finding: tuple[str, str]
) -> None:
    assert refusals("--model", "llama-3.2-1b", *arguments) == [finding]


def test_a_config_that_no_decoder_has_ends_with_2(tmp_path: Path) -> None:
    """From the command line: file, field, rule and fix."""
    known = json.loads(
        (ROOT / "src/hashtune/memory/known/qwen3-4b.json").read_text(encoding="utf-8")
    )
    file = tmp_path / "config.json"
    file.write_text(json.dumps(known["config"] | {"num_key_value_heads": 64}), encoding="utf-8")
    command = [sys.executable, "-m", "hashtune.cli.main", "plan", "--model", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    said = "num_key_value_heads: 64 key and value heads do not share 32 query heads [config-heads]"
    assert f"{file}: {said}\n    fix: a divisor of 32" in done.stderr


def test_sgd_without_momentum_needs_no_state(capsys: pytest.CaptureFixture[str]) -> None:
    """conf/optim/sgd.yaml has none (beta1: 0.0); with one it is 4 bytes a trained parameter."""
    base = ("--model", "llama-3.2-1b", "--seq", "64", "optim=sgd")
    assert answer(capsys, *base)["buckets_bytes"]["optimizer"] == 0
    report = answer(capsys, *base, "optim.beta1=0.9")
    assert report["buckets_bytes"]["optimizer"] == 4 * report["model"]["trainable"]


def test_without_a_model_settings_say_nothing() -> None:
    assert refusals("--seq", "512", "optim=adamw_8bit") == [("usage", "hashtune plan")]


def test_it_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from hashtune.cli.commands import parser; from hashtune.cli.plan import run;"
        f"run(parser().parse_args({['plan', *SEVENTY, '--json']!r}));"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'transformers')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


LOCK = """schema: '2.0'
stages:
  pack:
    params:
      params.yaml:
        data_seed: 1234
  plan:
    params:
      params.yaml:
        batch.micro: 1
    outs:
    - path: reports/plan.json
      md5: {md5}
"""


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A checkout with a report of plan, dvc.lock, and a run on record; gives the report."""
    asked = question(parser().parse_args(["plan", *SEVENTY, "--hardware", "h200"]), ROOT)
    report = ask(asked) | {"flops": 3.6e15, "hours": 2.0, "cost": 5.0}
    report |= {"longest_example": {"id": "triage-7", "tokens": 400, "row": 3}}
    params = (ROOT / "params.yaml").read_bytes()
    monkeypatch.chdir(tmp_path)
    writers.write_bytes(Path("params.yaml"), params)
    writers.write_json(REPORT, report)
    md5 = hashlib.md5(REPORT.read_bytes(), usedforsecurity=False).hexdigest()
    writers.write_text(Path("dvc.lock"), LOCK.format(md5=md5))
    machine = {"device": "EPYC", "hfu": 0.5, "peak_tflops": 0.22}
    writers.write_json(Path("reports/machine/train.json"), machine)
    return report


def test_the_plan_of_this_checkout(
    planned: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(parser().parse_args(["plan"])) == 0
    text = capsys.readouterr().out
    assert "stale" not in text
    assert "longest example                triage-7, 400 tokens, row 3" in text
    for line in planned["chart"]:
        assert line in text


def test_a_run_on_record_corrects_hours_and_cost(
    planned: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """3.6e15 FLOPs at half of 0.22 TFLOP/s are 9.09 h, and an hour costs 2.50; reports/plan.json
    keeps the assumption."""
    before = REPORT.read_bytes()
    assert run(parser().parse_args(["plan"])) == 0
    text = capsys.readouterr().out
    assert "the run on record (EPYC) used 50% of the peak; at that rate 9.09 h, 22.73 USD" in text
    measured = answer(capsys)["measured"]
    assert (round(measured["hours"], 3), measured["utilisation"]) == (9.091, 0.5)
    assert REPORT.read_bytes() == before


def test_another_machine_s_run_corrects_nothing(
    planned: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    machine = {"device": "H100", "hfu": 0.5, "peak_tflops": 989.0}
    writers.write_json(Path("reports/machine/train.json"), machine)
    assert answer(capsys)["measured"] is None


def test_a_stale_plan_is_named(planned: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("params.yaml").read_text(encoding="utf-8")
    Path("params.yaml").write_text(text.replace("micro: 1", "micro: 2"), encoding="utf-8")
    (stale,) = answer(capsys)["stale"]
    assert "batch.micro: stage plan ran with 1, params.yaml says 2" in stale
    writers.write_json(REPORT, planned | {"hours": 1.0})
    assert "is not the file DVC recorded" in answer(capsys)["stale"][0]
    assert run(parser().parse_args(["plan"])) == 0
    assert capsys.readouterr().out.startswith("stale: ")


def test_no_plan_and_an_old_one_are_refused(planned: dict[str, Any]) -> None:
    writers.write_json(REPORT, {"fits": True})
    assert refusals() == [("stale-plan", None)]
    REPORT.unlink()
    assert refusals() == [("no-plan", None)]


def test_block_characters_and_colours_on_a_terminal_only(
    planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert run(parser().parse_args(["plan"])) == 0
    assert "\x1b[31m" in (text := capsys.readouterr().out)
    assert BLOCKS[0] in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(parser().parse_args(["plan"])) == 0
    assert capsys.readouterr().out.isascii()


def test_eight_gpus_share_what_one_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """Full fine-tuning of 8B: 16 bytes a parameter are 128 GB, of which FSDP leaves an eighth on
    each of 8 GPUs; DDP leaves all."""
    base = ("--model", "llama-3.1-8b", "--method", "full", "--seq", "1024", "activations=full")
    eight = ("--gpus", "8", "--hardware", "h100", *base)
    shared = answer(capsys, *eight, "--sharding", "fsdp")
    assert (shared["fits"], shared["gpus"], shared["sharding"]) == (True, 8, "full")
    assert shared["buckets_bytes"]["optimizer"] == 8_030_261_248  # 8 bytes each, over 8
    alone = answer(capsys, "--hardware", "h100", *base)
    assert not alone["fits"]
    assert not answer(capsys, *eight)["fits"]
    h100 = {card["name"]: card for card in shared["cards"]}["h100"]
    one = {card["name"]: card for card in alone["cards"]}["h100"]
    assert h100["price_per_hour"] == 8 * one["price_per_hour"]


def test_what_lies_in_host_memory_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """41,943,040 trained parameters in 2 moments of 4 bytes; 32 inputs of 1,024 tokens and 4,096
    bf16 elements."""
    asked = ("--model", "llama-3.1-8b", "--method", "lora", "--seq", "1024", "--hardware", "h100")
    paged = answer(capsys, *asked, "optim=paged_adamw_32bit")
    assert paged["host_bytes"] == {"optimizer": 8 * 41_943_040}
    moved = answer(capsys, *asked, "activations=full", "activations.offload=true")
    assert moved["host_bytes"] == {"activations": 32 * 1024 * 4096 * 2}
    assert "host_bytes" not in answer(capsys, *asked)
    run(parser().parse_args(["plan", *asked, "optim=paged_adamw_32bit"]))
    assert "host memory" in capsys.readouterr().out


def test_sixteen_gpus_hold_full_fine_tuning_of_70b(capsys: pytest.CaptureFixture[str]) -> None:
    """16 bytes of each of 70,553,706,496 parameters over 16 GPUs: a byte of each for a byte; no
    bucket is the whole model's."""
    asked = ("--model", "llama-3.1-70b", "--method", "full", "--seq", "1024", "activations=full")
    many = ("--hardware", "h200", "--gpus", "16")
    shared = answer(capsys, *asked, *many, "--sharding", "fsdp")
    state = [shared["buckets_bytes"][name] for name in ("weights", "gradients", "optimizer")]
    assert sum(state) == 70_553_706_496
    assert max(shared["buckets_bytes"].values()) < 70_553_706_496
    assert shared["fits"]
    hybrid = answer(capsys, *asked, *many, "--sharding", "hybrid", "--shard-size", "8")
    assert hybrid["buckets_bytes"]["weights"] == 2 * shared["buckets_bytes"]["weights"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--sharding", "fsdp"), "--sharding"),
        (("--gpus", "0"), "--gpus"),
        (("--gpus", "8", "--sharding", "hybrid"), "--shard-size"),
        (("--gpus", "8", "--shard-size", "2"), "--shard-size"),
        (("--gpus", "8", "--sharding", "hybrid", "--shard-size", "3"), "--shard-size"),
    ],
)
def test_gpus_that_cannot_share_are_refused(arguments: tuple[str, ...], field: str) -> None:
    found = refusals("--model", "llama-3.2-1b", "--seq", "64", *arguments)
    assert [where for _, where in found] == [field]
