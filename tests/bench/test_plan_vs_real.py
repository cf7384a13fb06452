"""The bench on real steps: which cases it has, and its verdict on figures by hand."""

from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench(script) -> ModuleType:
    """The module."""
    return script("plan_vs_real")


def result(bench: ModuleType, rehearsed: int, closed: int) -> object:
    """Of a step whose peak is 1,000 bytes."""
    return bench.Result(bench.Case("lora", "none", False, 64), 1000, rehearsed, closed)


@pytest.mark.parametrize(
    ("rehearsed", "closed", "good"),
    [(1009, 1099, True), (991, 901, True), (1011, 1000, False), (1000, 1101, False)],
)
def test_the_verdict(bench, rehearsed, closed, good):
    """The planted fault: one case of two off by more than 1 %, or 10 %."""
    right = result(bench, 1000, 1000)
    assert bench.verdict([right])[0]
    assert bench.verdict([right, result(bench, rehearsed, closed)])[0] is good


def test_exit_code_1_of_a_case_that_is_off(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench, "results", lambda *_: [result(bench, 1020, 1000)])
    assert bench.main([]) == 1
    assert "rehearsal within 1%: False; closed form within 10%: True" in capsys.readouterr().out
    monkeypatch.setattr(bench, "results", lambda *_: [result(bench, 1000, 1000)])
    assert bench.main([]) == 0


def test_cases(bench):
    """Three methods, kept or recomputed, whole or chunks, three lengths; of some, two of each."""
    assert len(set(bench.cases_of(bench.METHODS, bench.LENGTHS, some=False))) == 36
    some = bench.cases_of(bench.METHODS, (64,), some=True)
    assert [(case.checkpointing, case.chunked) for case in some] == [
        ("none", False),
        ("full", True),
    ] * 3
