"""Rows: boundaries, positions, refusals."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.errors import InputError
from hashtune.packing.rows import (
    build_rows,
    document_ids,
    document_offsets,
    position_ids,
    trained_tokens,
)
from hashtune.records import IGNORE_INDEX, Row


def example(name: str, ids: list[int], labels: list[int] | None = None) -> dict[str, Any]:
    return {"id": name, "input_ids": ids, "labels": list(ids) if labels is None else labels}


A = example("a", [10, 11, 12, 2])
B = example("b", [20, 21, 2])


def test_c29_positions_and_documents_restart_at_each_document() -> None:
    # A = 10 11 12 2, B = 20 21 2, and one place of padding
    assert position_ids([4, 3]) == [0, 1, 2, 3, 0, 1, 2]
    assert document_ids([4, 3]) == [1, 1, 1, 1, 2, 2, 2]
    assert document_ids([4, 3], padded_to=8) == [1, 1, 1, 1, 2, 2, 2, 0]
    assert document_offsets([4, 3]) == [0, 4, 7]


def test_c30_no_label_crosses_a_boundary() -> None:
    (row,) = build_rows([A, B], max_seq_len=8, packing=True)
    assert row == Row(
        row=0,
        example_ids=["a", "b"],
        lengths=[4, 3],
        input_ids=[10, 11, 12, 2, 20, 21, 2],
        labels=[-100, 11, 12, 2, -100, 21, 2],
    )
    assert trained_tokens(row) == 5  # (4 - 1) + (3 - 1); six would include 2 -> 20


def test_without_packing_each_document_has_its_row_in_order() -> None:
    rows = build_rows([B, A], max_seq_len=8, packing=False)
    assert [(row.row, row.example_ids, row.lengths) for row in rows] == [
        (0, ["b"], [3]),
        (1, ["a"], [4]),
    ]
    assert rows[0].labels == [-100, 21, 2]


def test_all_faults_in_one_run() -> None:
    bad = [
        example("long", [1] * 13),
        A,
        example("empty", []),
        example("short-labels", [1, 2, 3], [1, 2]),
        example("prompt", [1, 2, 3], [1, -100, -100]),
        example("long-too", [1] * 11),
    ]
    with pytest.raises(InputError) as caught:
        build_rows(bad, max_seq_len=10, packing=True, file="build/tokenize/train.parquet")
    assert [finding.rule for finding in caught.value.findings] == [
        "over-long",
        "empty-example",
        "labels-length",
        "nothing-to-learn",
        "over-long",
    ]
    assert "example 0 (long) has 13 tokens, more than data.max_seq_len = 10" in str(caught.value)
    assert "build/tokenize/train.parquet" in str(caught.value)


LENGTHS = st.lists(st.integers(2, 16), min_size=1, max_size=40)


@settings(deadline=None)
@given(LENGTHS, st.booleans())
def test_every_example_once_with_its_own_tokens(lengths: list[int], packing: bool) -> None:
    examples = [
        example(str(n), [100 * n + k for k in range(length)]) for n, length in enumerate(lengths)
    ]
    rows = build_rows(examples, max_seq_len=16, packing=packing)
    seen: dict[str, list[int]] = {}
    for row in rows:
        assert sum(row.lengths) == len(row.input_ids) == len(row.labels) <= 16
        offsets = document_offsets(row.lengths)
        for name, start, end in zip(row.example_ids, offsets, offsets[1:], strict=False):
            assert name not in seen
            seen[name] = row.input_ids[start:end]
            assert row.labels[start] == IGNORE_INDEX
            assert row.labels[start + 1 : end] == row.input_ids[start + 1 : end]
    assert seen == {item["id"]: item["input_ids"] for item in examples}
    assert sum(trained_tokens(row) for row in rows) == sum(length - 1 for length in lengths)
    assert rows == build_rows(examples, max_seq_len=16, packing=packing)
