"""The bench of checkpointing's peaks on few tokens; planted faults of follower and plan."""

import sys
from types import ModuleType

import pytest
import torch

# PEFT 0.21 still asks transformers 5.24 for the old name of this attribute
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


@pytest.fixture(scope="module")
def bench(script) -> ModuleType:
    """The script as a module."""
    return script("activations")


def run(bench, monkeypatch, capsys, *options: str) -> tuple[int, dict[str, int]]:
    """Exit code, and peak bytes by variant."""
    monkeypatch.setattr(sys, "argv", ["activations.py", "--tokens", "128", *options])
    code = bench.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    return code, {line[0]: int(line[2].replace(",", "")) for line in lines}


def test_the_most_bytes_at_once_are_counted(bench):
    own = torch.zeros(100)
    with bench.Peak([own]) as peak:
        one = own + 1  # 400 bytes, beside what is ignored
        two = one * 2  # 800
        del one
        three = two[:50]  # a view
        del two
        four = three + 1  # 600
    assert (peak.peak, peak.now, len(four)) == (800, 600, 50)


def test_each_variant_has_a_peak_and_checkpointing_lowers_it(bench, monkeypatch, capsys):
    code, peaks = run(bench, monkeypatch, capsys)
    assert code == 0
    assert tuple(peaks) == bench.VARIANTS
    assert peaks["full"] < peaks["selective"] < peaks["none"] < peaks["products"]


@pytest.mark.parametrize("factor", [0.8, 1.4])
def test_a_plan_that_is_off_is_a_failure(bench, monkeypatch, capsys, factor):
    estimate = bench.estimate
    monkeypatch.setattr(bench, "estimate", lambda work: round(factor * estimate(work)))
    assert run(bench, monkeypatch, capsys, "--variants", "prompt")[0] == 1
