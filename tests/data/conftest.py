"""Tables of given rows; they share one spill file, since hypothesis makes many."""

from collections.abc import Callable, Iterable, Iterator

import pytest

from hashtune.data.cleaning import content_key
from hashtune.data.spill import Spill
from hashtune.data.table import Table
from hashtune.records import Conversation


@pytest.fixture(scope="session")
def spill(tmp_path_factory) -> Iterator[Spill]:
    with Spill(tmp_path_factory.mktemp("spill")) as made:
        yield made


@pytest.fixture(scope="session")
def table_of(spill) -> Callable[[Iterable[Conversation]], Table]:
    """Makes a table of conversations, whose numbers are their places."""

    def make(rows: Iterable[Conversation]) -> Table:
        table = Table(spill)
        for row in rows:
            table.add(row, content_key(row))
        return table

    return make
