"""The journal: which steps are told in full, over which steps their rates are, what is skipped."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hashtune.records import Row
from hashtune.training import journal as journals
from hashtune.training.checkpoint import Progress
from hashtune.training.journal import Aside, Journal
from hashtune.training.rates import Gauge, Meter
from hashtune.training.step import EvalResult, StepResult
from hashtune.training.utilisation import Work
from hashtune.training.watch import Watcher
from hashtune.writers import read_jsonl

ROW = Row(0, ["a", "b"], [3, 1])  # 4 tokens, mean context (9 + 1) / 4 = 2.5
# a token costs 4 * 1000 + 12 * 1 * 10 * 2.5 = 4,300 FLOPs; the peak is 100,000 FLOP/s
GAUGE = Gauge(Work(frozen=1000, trainable=0, layers=1, width=10), peak_tflops=1e-7)
ALONE = Aside()


class Curves:
    """Keeps the points instead of writing files."""

    def __init__(self) -> None:
        self.points: list[Mapping[str, Any]] = []

    def log(self, point: Mapping[str, Any]) -> None:
        self.points.append(point)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(journals, "peak_memory_gb", lambda: 1.5)
    return []


def open_journal(said: list[str], aside: Aside = ALONE, gauge: Gauge = GAUGE) -> Journal:
    curves: Any = Curves()
    watcher = Watcher(vocab=512, grad_clip=1.0)
    return Journal(Progress(), Meter(), curves, gauge, 20, said.append, aside, watcher)


def take(journal: Journal, *, loss: float = 2.0, seconds: float = 2.0) -> None:
    """One step of four tokens, two of them trained."""
    journal.progress.step += 1
    journal.meter.add([ROW], trained_tokens=2, seconds=seconds)
    result = StepResult(loss, 1.5, 0.25, 0.5, 2, 4, applied=math.isfinite(loss))
    if not result.applied:
        journal.skip([ROW])
    journal.step(result, 0.001)


def test_the_first_step_in_full(said: list[str]) -> None:
    take(open_journal(said))
    assert said == [
        "  step 1/20  loss 2.0000  lr 1.00e-03  grad norm 0.50  accuracy 0.250  entropy 1.50",
        # 4 tokens in 2 s; 2 * 4,300 of 100,000 FLOP/s
        "    2 tokens/s, 1 trained  4 tokens/step, 2 trained  MFU 8.6 %  HFU 8.6 %  peak 1.50 GB",
        "    skipped 0  about 38 s left",
    ]


def test_every_tenth_and_the_last_step_in_full_and_their_rates_since_the_full_line_before(
    said: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "machine" / "log.jsonl"
    journal = open_journal(said, Aside(log=log))
    for step in range(1, 21):
        take(journal, seconds=2.0 if step <= 10 else 1.0)
    full = [line for line in said if line.startswith("  step") and "entropy" in line]
    assert [line.split()[1] for line in full] == ["1/20", "10/20", "20/20"]
    assert "  step 2/20  loss 2.0000" in said
    lines = read_jsonl(log)
    assert [line["step"] for line in lines] == [1, 10, 20]
    assert [line["tokens_per_second"] for line in lines] == [2.0, 2.0, 4.0]
    assert [line["trained_tokens_per_second"] for line in lines] == [1.0, 1.0, 2.0]
    assert [line["mfu"] for line in lines] == pytest.approx([0.086, 0.086, 0.172])
    assert lines[2] == {
        "step": 20,
        "loss": 2.0,
        "lr": 0.001,
        "grad_norm": 0.5,
        "accuracy": 0.25,
        "entropy": 1.5,
        "tokens_per_second": 4.0,
        "trained_tokens_per_second": 2.0,
        "tokens_per_step": 4.0,
        "trained_tokens_per_step": 2.0,
        "model_tflops": pytest.approx(4300 * 4 / 1e12),
        "mfu": pytest.approx(0.172),
        "hfu": pytest.approx(0.172),
        "peak_memory_gb": 1.5,
        "skipped": 0,
    }


def test_a_second_forward_raises_hfu_alone(said: list[str]) -> None:
    work = Work(frozen=1000, trainable=0, layers=1, width=10, again=1000, layers_again=1)
    take(open_journal(said, gauge=Gauge(work, 1e-7)))
    # 2 * 1000 + 4 * 1 * 10 * 2.5 = 2,100 more: 6,400 * 2 of 100,000
    assert "MFU 8.6 %  HFU 12.8 %" in said[1]


def test_without_a_peak_there_is_no_utilisation(said: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    journal = open_journal(said, Aside(log=log), gauge=Gauge(GAUGE.work, None))
    journal.start()
    take(journal)
    assert not any("MFU" in line for line in said)
    (line,) = read_jsonl(log)
    assert (line["mfu"], line["hfu"], line["tokens_per_second"]) == (None, None, 2.0)


def test_the_convention_is_said_at_the_start(said: list[str]) -> None:
    open_journal(said, gauge=Gauge(GAUGE.work, 989.0)).start()
    (line,) = said
    assert line.startswith("  MFU of 989 TFLOP/s. FLOPs per token: 4 per frozen and 6 per trained")


def test_a_skipped_step_names_rows_and_source_lines_and_stays_out_of_the_curves(
    said: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    asked: list[list[str]] = []

    def places(ids: Any) -> dict[str, str]:
        asked.append(list(ids))
        return {"a": "triage:12"}

    journal = open_journal(said, Aside(log=log, places=places))
    take(journal, loss=math.nan)
    assert said[0] == "  step 1 skipped, not finite; row 0: a (triage:12), b"
    assert said[1].startswith("  step 1/20  loss nan")
    assert "    skipped 1  about 38 s left" in said
    assert asked == [["a", "b"]]
    assert journal.progress.skipped == [1]
    assert journal.progress.points == []
    (line,) = read_jsonl(log)
    assert (line["loss"], line["skipped"]) == (None, 1)
    take(journal)
    assert len(asked) == 1  # a step that is applied looks nothing up


def test_the_curves_get_what_the_checkpoint_keeps(said: list[str]) -> None:
    journal = open_journal(said)
    take(journal)
    journal.evaluation(EvalResult(1.25, 0.5), [], patience=None)
    journal.evaluation(EvalResult(1.5, 0.5), [], patience=3)
    train, *evals = journal.progress.points
    assert train == {
        "step": 1,
        "train/loss": 2.0,
        "train/accuracy": 0.25,
        "train/entropy": 1.5,
        "train/grad_norm": 0.5,
        "train/lr": 0.001,
    }
    assert evals == [
        {"step": 1, "eval/loss": 1.25, "eval/accuracy": 0.5},
        {"step": 1, "eval/loss": 1.5, "eval/accuracy": 0.5, "eval/since_best": 1},
    ]
    curves: Any = journal.curves
    assert curves.points == journal.progress.points
    assert said[-1] == "  step 1  eval loss 1.5000  accuracy 0.500"


def test_a_resumed_run_goes_on_with_its_log_and_a_fresh_one_starts_anew(
    said: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    journal = open_journal(said, Aside(log=log))
    journal.start()
    take(journal)
    resumed = open_journal(said, Aside(log=log))
    resumed.progress.step = 9
    resumed.start()
    take(resumed)
    assert [line["step"] for line in read_jsonl(log)] == [1, 10]
    open_journal(said, Aside(log=log)).start()
    assert not log.exists()


def test_a_signal_is_said_once_and_not_again_after_a_resume(said: list[str]) -> None:
    journal = open_journal(said)
    for _ in range(12):
        take(journal, loss=0.3)
    signals = [line for line in said if "signal" in line]
    assert len(signals) == 1
    assert signals[0].startswith("  signal: step 1: the first loss is 0.30, suspiciously low")
    assert signals[0].endswith("[low-start]")
    resumed = open_journal(said)
    resumed.progress.points += journal.progress.points
    resumed.progress.step = 12
    resumed.start()
    take(resumed, loss=0.3)
    assert [line for line in said if "signal" in line] == signals
    assert [signal.name for signal in resumed.watcher.fired] == ["low-start"]


def test_samples_are_kept_whole_and_shown_in_lines(said: list[str]) -> None:
    journal = open_journal(said)
    sample = {
        "example": "5f0c",
        "answer": '\x1b[31m{"no":\nend' + "x" * 200,
        "reference": '{\n "ja": "schön"\n}',
    }
    journal.evaluation(EvalResult(1.25, 0.5), [sample], patience=None)
    assert journal.progress.samples == [sample]
    shown = r'\x1b[31m{"no":⏎ end' + "x" * 65  # 15 characters and 65 make 80
    assert said[-3:] == [
        "    5f0c",
        f"      answer  {shown} ... 135 more characters",
        '      data    {⏎  "ja": "schön"⏎ }',
    ]
