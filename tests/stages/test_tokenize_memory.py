"""Stage tokenize holds no more for ten times the rows; bench/tokenize_memory.py measures the rest.

Traced is what Python holds in the parent; the rows are cheap, so that whatever is kept of each row
would stand out.
"""

import gc
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import errors, writers
from hashtune.chat import summary
from hashtune.chat.chunks import tokenize_rows
from hashtune.chat.examples import Tokenized
from hashtune.chat.limits import Distribution
from hashtune.chat.over_length import fit
from hashtune.errors import Finding, InputError
from hashtune.records import Conversation, Example, conversation_schema
from hashtune.stages import tokenize

ROWS, LIMIT = 1_000, 4


class Letters:
    """Decodes for the report's samples."""

    def decode(self, ids: Sequence[int]) -> str:
        return "x" * len(ids)


@pytest.fixture(autouse=True)
def small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HASHTUNE_PROCESSES", "1")
    monkeypatch.setattr(writers, "STREAM_ROWS", 256)
    monkeypatch.setattr(tokenize, "CHUNK_ROWS", 48)
    usual = gc.get_threshold()
    gc.set_threshold(50)  # cycles do not lie about until chance collects them
    yield
    gc.set_threshold(*usual)


def cheap(conversation: Conversation) -> Tokenized:
    """One to five tokens, the last one trained."""
    size = 1 + conversation.line % 5
    labels = [-100] * (size - 1) + [7]
    return Tokenized([Example(conversation.id, conversation.id, "s", [7] * size, labels)], 1, [])


def odd(conversation: Conversation) -> Tokenized:
    raise InputError(Finding("odd", "is odd", file="s", line=conversation.line))


def unfit(conversation: Conversation) -> Tokenized:
    """Every fifth row breaks a rule that may be dropped."""
    if conversation.line % 5 == 4:
        fault = Finding("trailing", "is odd", file="s", line=conversation.line)
        raise InputError(fault)
    return cheap(conversation)


def peak(
    rows: int, *, one: Any = cheap, over_length: Any = "drop", on_bad_row: Any = "error"
) -> int:
    """Bytes that Python holds at most while the stage does one split of so many rows."""
    limit = partial(fit, max_seq_len=LIMIT, over_length=over_length)
    columns = {"source": "s", "group": None, "messages": "[]"}
    talks = [{"id": str(n), "line": n, **columns} for n in range(rows)]
    writers.write_parquet(Path("build/prepare/train.parquet"), talks, conversation_schema())
    del talks
    folder = Path(f"out{rows}")
    folder.mkdir(exist_ok=True)
    (folder / "ledger.jsonl").unlink(missing_ok=True)
    found: InputError | None = None
    gc.collect()
    tracemalloc.start()
    try:
        chunk = partial(tokenize_rows, tokenize=one, limit=limit, on_bad_row=on_bad_row)
        tokenize._split("train", folder, chunk, Letters(), max_drop_share=1.0)
    except InputError as error:
        found = error
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if found is None:
        assert len(writers.read_jsonl(folder / "ledger.jsonl")) == rows // 5
        assert writers.parquet_rows(folder / "train.parquet") == rows - rows // 5
    else:
        count = rows if one is odd else rows // 5
        assert len(found.findings) + sum(found.more.values()) == count
    return held


def grows(times: int = 10, **case: Any) -> bool:
    """Whether so many times the rows hold over 4 bytes of each further one: a pointer has 8.

    Twice, since chance (when garbage is collected) does not repeat.
    """
    peak(2 * ROWS, **case)  # imports, caches, free lists
    few = peak(ROWS, **case)
    further = (times - 1) * ROWS
    return all(peak(times * ROWS, **case) - few > 4 * further for _ in range(2))


CASES: dict[str, dict[str, Any]] = {
    "kept and dropped": {},
    "refused": {"one": odd},
    "too long": {"over_length": "error"},
    "dropped by a policy": {"one": unfit, "on_bad_row": "drop"},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_further_rows_need_no_further_memory(case: dict[str, Any]) -> None:
    assert not grows(**case)


def test_lengths_written_out_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = summary.percentiles

    def expanded(found: Distribution) -> dict[str, int]:
        steps = zip(found.lengths, found.examples, found.examples[1:], strict=False)
        every = [size for size, before, after in steps for _ in range(before, after)]
        assert max(every) == 5
        return right(found)

    monkeypatch.setattr(summary, "percentiles", expanded)
    assert grows(times=30)  # held after the peak of the chunks


def test_a_ledger_in_memory_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right, ledger = tokenize._line, []

    def kept(*line: Any) -> str:
        ledger.append(right(*line))
        return ledger[-1]

    monkeypatch.setattr(tokenize, "_line", kept)
    assert grows()


def test_findings_in_memory_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "SHOWN_IN_FULL", 10**9)
    assert grows(one=odd)
