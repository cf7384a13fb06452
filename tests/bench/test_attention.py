"""The bench of attention by document on short documents; planted faults of result and speed."""

import sys
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench(script) -> ModuleType:
    """The script as a module."""
    return script("attention")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of three short documents, both precisions."""
    monkeypatch.setattr(sys, "argv", ["attention.py", "--lengths", "7", "5", "1", "--rounds", "2"])


def test_each_way_and_precision_has_its_line(bench, small, monkeypatch, capsys):
    monkeypatch.setattr(bench, "LIMIT", 0.0)  # calls this short say nothing of speed
    assert bench.main() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[:2] for line in lines] == [
        [precision, way] for precision in ("fp32", "bf16") for way in bench.WAYS
    ]


def test_a_forgotten_boundary_is_named(bench, small, monkeypatch, capsys):
    def leaking(tensors, lengths):
        return bench.by_document(tensors, [sum(lengths)])

    monkeypatch.setattr(bench, "LIMIT", 0.0)
    monkeypatch.setattr(bench, "WAYS", {**bench.WAYS, "documents": leaking})
    assert bench.main() == 1
    assert "fp32 documents: differs from the mask" in capsys.readouterr().out


@pytest.mark.parametrize(("ms", "code"), [(5.0, 0), (5.1, 1)])
def test_less_than_twice_as_fast_is_a_failure(bench, small, monkeypatch, ms, code):
    planted = {"mask": [{"ms": 10.0}], "padded": [{"ms": 8.0}], "documents": [{"ms": ms}]}
    monkeypatch.setattr(bench, "in_turn", lambda runs, rounds, say: planted)
    assert bench.main() == code
