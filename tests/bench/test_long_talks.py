"""Talks of a few turns through the bench; its verdict on times made by hand."""

import sys
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench(script) -> ModuleType:
    """The script as a module."""
    return script("long_talks")


def results(last: float) -> dict:
    """Times of 5 and 20 turns; `last` is that of the longest talk under `last`."""
    return {
        ("stable", 5): [{"ms": 9.0}, {"ms": 2.0}],
        ("stable", 20): [{"ms": 8.0}, {"ms": 30.0}],
        ("last", 5): [{"ms": 3.0}, {"ms": 4.0}],
        ("last", 20): [{"ms": last}, {"ms": 100.0}],
    }


def test_the_ratio_is_that_of_the_least_times(bench):
    assert bench.ratios(results(24.0)) == {"stable": 4.0, "last": 8.0}


def test_without_a_quarter_there_is_nothing_to_judge(bench):
    with pytest.raises(ValueError, match="--turns has 20"):
        bench.ratios({key: runs for key, runs in results(1.0).items() if key[1] == 20})


@pytest.mark.parametrize(("last", "code"), [(24.0, 0), (24.3, 1)])
def test_over_eight_times_is_a_failure(bench, monkeypatch, capsys, last, code):
    planted = {name: [{**r, "tokens": 1} for r in runs] for name, runs in results(last).items()}
    monkeypatch.setattr(bench, "in_turn", lambda runs, rounds, say: planted)
    monkeypatch.setattr(sys, "argv", ["long_talks.py", "--turns", "5", "20", "--split"])
    assert bench.main() == code
    assert f"last: {last / 3:.2f} times" in capsys.readouterr().out


def test_a_small_run_prints_each_kind_and_length(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench, "LIMIT", 1e9)  # times of talks this short say nothing
    options = ["--turns", "2", "8", "--split", "2", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["long_talks.py", *options])
    assert bench.main() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[:-2]]
    assert [(kind, turns) for kind, turns, *_ in lines] == [
        *(("stable", "2"), ("stable", "8"), ("last", "2"), ("last", "8"), ("split", "2"))
    ]
    tokens = {(line[0], line[1]): int(line[5].replace(",", "")) for line in lines}
    # the first turn's example is the second's first half, and an empty block of reasoning
    assert tokens["last", "2"] < tokens["split", "2"] < 2 * tokens["last", "2"]
