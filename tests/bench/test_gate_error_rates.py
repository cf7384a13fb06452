"""The gate's error rates in small, and faults of its statistics that the simulation must show.

The full table is `make prove`'s. 200 tables here, so each rate has a standard error of about 0.015
at 0.05; the limits of the honest cases have that much room, the planted faults are far beyond them.
"""

import math

import pytest

from hashtune.evaluation import gate_suites
from hashtune.evaluation.statistics import Interval

TABLES = 200


@pytest.fixture
def bench(script):
    return script("gate_error_rates")


@pytest.fixture
def case(bench):
    known = {(case.what, case.word): case for case in bench.cases()}
    assert len(known) == len(bench.cases())
    return lambda what, word="fail": known[what, word]


HONEST = [
    ("no loss, demo margins", "fail"),
    ("no loss, demo margins", "pass"),
    ("no loss, narrowest margins", "fail"),
    ("no loss, 15 strict slices", "fail"),
    ("true drop is the margin", "pass"),
    ("detectable drop", "fail"),
    ("detectable in one slice", "fail"),
]


@pytest.mark.parametrize(("what", "word"), HONEST)
def test_the_gate_keeps_its_limits(bench, case, what, word):
    assert case(what, word).holds(bench.rate(case(what, word), count=TABLES))


def test_a_bound_with_the_wrong_sign_is_seen(bench, case, monkeypatch):
    """Planted: the lower bound is held against the margin instead of the upper one."""
    right = gate_suites.difference_interval

    def swapped(*values, **settings):
        drop = right(*values, **settings)
        return Interval(drop.point, drop.upper, drop.lower, drop.items)

    monkeypatch.setattr(gate_suites, "difference_interval", swapped)
    wrong = case("true drop is the margin", "pass")
    assert not wrong.holds(bench.rate(wrong, count=TABLES))


def test_unpaired_statistics_are_seen(bench, case, monkeypatch):
    """Planted: base and adapter as if they had answered other items each."""

    def unpaired(old, new, *, confidence, resamples, seed):
        items, a, b = len(old), sum(old) / len(old), sum(new) / len(new)
        half = 1.6449 * math.sqrt((a * (1 - a) + b * (1 - b)) / items)
        return Interval(b - a, b - a - half, b - a + half, items)

    monkeypatch.setattr(
        gate_suites, "difference_interval", lambda old, new, **k: unpaired(new, old, **k)
    )
    wide = case("no loss, demo margins", "pass")
    assert not wide.holds(bench.rate(wide, count=TABLES))


def test_a_missing_correction_is_seen(bench, case, monkeypatch):
    """Planted: every slice asks at the full level."""
    monkeypatch.setattr(gate_suites, "holm", list)
    eager = case("no loss, 15 strict slices")
    assert eager.gate.slice_max_drop == 0.0
    assert not eager.holds(bench.rate(eager, count=TABLES))


def test_a_broken_limit_ends_in_1(bench, monkeypatch, capsys):
    """Planted: a gate that fails one table in ten whatever it is shown."""
    calls = iter(range(10_000))
    honest = bench.gate.decide

    def moody(evidence, gate):
        verdict = honest(evidence, gate)
        return bench.replace(verdict, verdict="fail") if next(calls) % 10 == 0 else verdict

    monkeypatch.setattr(bench, "cases", lambda: bench_cases[:1])
    bench_cases = [bench.Case("no loss", "fail", sizes=(30,), most=bench.MOST_WRONG)]
    monkeypatch.setattr(bench.sys, "argv", ["gate_error_rates.py", "--tables", "40"])
    assert bench.main() == 0
    monkeypatch.setattr(bench.gate, "decide", moody)
    assert bench.main() == 1
    assert "BROKEN" in capsys.readouterr().out
