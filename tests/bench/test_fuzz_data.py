"""A small version of bench/fuzz_data.py, and readers with planted faults that it must catch."""

import json
from collections.abc import Iterator
from types import ModuleType

import pytest

from hashtune.chat import bodies, chunks, examples, summary
from hashtune.chat import messages as chat_messages
from hashtune.data import cleaning, lines, located, messages, readers, sources
from hashtune.spec import pins
from hashtune.stages import prepare

FILES = 300


@pytest.fixture(scope="module")
def fuzz_data(script, tmp_path_factory) -> Iterator[ModuleType]:
    """The script as a module, with the synthetic base in a store of its own."""
    module = script("fuzz_data")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in module.use_home(tmp_path_factory.mktemp("fuzz")).items():
            patch.setenv(name, value)
        module.warm_up()
        yield module


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


def every_turn(messages, _loss_on):
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


def last_turn(messages, loss_on):
    return every_turn(messages, loss_on)[-1:]


def no_findings(*_arguments, **_keywords):
    return [], []


def count_one_less(kept, dropped, **more):
    return summary.tally(kept[1:], dropped, **more)


PLANTED = [
    (readers, "parse_strict", lenient, "expected"),
    (readers, "parse_strict", crash, "RecursionError"),
    (sources.Judge, "of_row", silent, "dropped {}, expected"),
    (readers, "lines", split_at_any_line_end, "kept"),
    (messages, "check_text", no_check, "expected"),
    (cleaning, "Dropped", crash, "RecursionError"),
    (chat_messages, "parse_strict", lenient, "tokenize finds nothing, expected 'tool-arguments'"),
    (examples, "control_tokens", no_check, "expected 'control-token'"),
    (examples, "check_contents", no_findings, "expected 'dropped'"),
    (bodies, "_check_reasoning", no_check, "expected 'open-reasoning'"),
    (examples, "trained_turns", every_turn, "expected 'nothing-to-learn'"),
    (examples, "trained_turns", last_turn, "'proof'"),  # chat/owed.py is the first to tell
    (chunks, "tally", count_one_less, "rows in, report says"),
    (chunks, "Chunk", crash, "RecursionError"),
]


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_caught(fuzz_data, tmp_path, monkeypatch, fault):
    module, name, planted, said = fault
    monkeypatch.setattr(module, name, planted)
    found = (fuzz_data.fuzz(0, range(at, at + 1), tmp_path)[0] for at in range(FILES))
    assert any(said in failure for failures in found for failure in failures)


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (every_turn, "tokenize finds nothing, expected 'nothing-to-learn'"),
        (last_turn, "trained is"),
    ],
)
def test_wrong_turns_are_caught_without_the_proof(fuzz_data, tmp_path, monkeypatch, planted, said):
    """chat/owed.py tells first; the files' own statement tells too."""
    monkeypatch.setattr(examples, "turn_faults", lambda *_asked, **_policies: [])
    monkeypatch.setattr(examples, "trained_turns", planted)
    found = (fuzz_data.fuzz(0, range(at, at + 1), tmp_path)[0] for at in range(FILES))
    assert any(said in failure for failures in found for failure in failures)


def test_every_address_is_refused_as_stated(fuzz_data, tmp_path):
    assert fuzz_data.fuzz_addresses(0, range(120), tmp_path) == []


@pytest.mark.parametrize(
    "fault",
    [
        (pins, "address_fault", lambda _: None, "spec finds [], expected 'secret'"),
        (prepare, "address_fault", lambda _: None, "prepare prints the secret"),
        (pins, "place", lambda root, uri: ((root / uri).resolve(), True), "Traceback"),
        (located, "_uri_fault", lambda _: None, "expected 'outside'"),
    ],
)
def test_a_planted_leak_is_caught(fuzz_data, tmp_path, monkeypatch, fault):
    module, name, planted, said = fault
    monkeypatch.setattr(module, name, planted)
    failures = fuzz_data.fuzz_addresses(0, range(120), tmp_path)
    assert any(said in failure for failure in failures)


def test_a_file_that_takes_too_long_is_a_failure(fuzz_data, tmp_path, monkeypatch):
    def hang(*_arguments, **_keywords):
        while True:
            pass

    monkeypatch.setattr(fuzz_data, "SECONDS", 0.05)
    monkeypatch.setattr(fuzz_data, "load", hang)
    failures, _ = fuzz_data.fuzz(0, range(1), tmp_path)
    assert len(failures) == 1 and "took more than" in failures[0]
