"""A small version of bench/fuzz_data.py, and readers with planted faults that it must catch."""

import json
from types import ModuleType

import pytest

from hashtune.data import cleaning, lines, messages, readers, sources

FILES = 300


@pytest.fixture(scope="module")
def fuzz_data(script) -> ModuleType:
    """The script as a module."""
    return script("fuzz_data")


def test_every_file_gives_what_its_maker_states(fuzz_data, tmp_path):
    failures, counts = fuzz_data.fuzz(0, range(FILES), tmp_path)
    assert failures == []
    assert set(counts) == {"jsonl", "json", "csv", "tsv", "parquet"}


def test_a_number_gives_the_same_file_again(fuzz_data):
    for number in range(20):
        assert fuzz_data.case_of(1, number) == fuzz_data.case_of(1, number)
    assert fuzz_data.case_of(1, 0) != fuzz_data.case_of(2, 0)


def lenient(text):
    return json.loads(text)


def silent(*_arguments, **_keywords):
    return None


def no_check(*_arguments, **_keywords):
    return []


def split_at_any_line_end(handle):
    text = handle.read().decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        yield lines.Line(number, 0, len(line.encode()), line.encode(), False)


def crash(*_arguments, **_keywords):
    raise RecursionError


PLANTED = [
    (readers, "parse_strict", lenient, "expected"),
    (readers, "parse_strict", crash, "RecursionError"),
    (sources.Judge, "of_row", silent, "dropped {}, expected"),
    (readers, "lines", split_at_any_line_end, "kept"),
    (messages, "check_text", no_check, "expected"),
    (cleaning, "Dropped", crash, "RecursionError"),
]


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_caught(fuzz_data, tmp_path, monkeypatch, fault):
    module, name, planted, said = fault
    monkeypatch.setattr(module, name, planted)
    failures, _ = fuzz_data.fuzz(0, range(60), tmp_path)
    assert any(said in failure for failure in failures)


def test_a_file_that_takes_too_long_is_a_failure(fuzz_data, tmp_path, monkeypatch):
    def hang(*_arguments, **_keywords):
        while True:
            pass

    monkeypatch.setattr(fuzz_data, "SECONDS", 0.05)
    monkeypatch.setattr(fuzz_data, "load", hang)
    failures, _ = fuzz_data.fuzz(0, range(1), tmp_path)
    assert len(failures) == 1 and "took more than" in failures[0]
