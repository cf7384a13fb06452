"""Columns of token ids: the values that pyarrow gives from the same lists."""

from hypothesis import given
from hypothesis import strategies as st

from hashtune.chat.columns import packed, token_column
from hashtune.records import example_schema

EDGE = 2**31 - 1


def test_values_one_after_another() -> None:
    assert list(memoryview(packed([[1, -100], [], [EDGE]])).cast("i")) == [1, -100, EDGE]


@given(st.lists(st.lists(st.integers(-EDGE - 1, EDGE), max_size=5), max_size=6))
def test_a_column_is_the_one_of_pyarrow(rows: list[list[int]]) -> None:
    import pyarrow as pa

    column = token_column(rows)
    assert column.type == example_schema().field("labels").type
    assert column == pa.array(rows, type=column.type)
    assert column.to_pylist() == rows
