"""A chunk of conversations at a time: its examples as columns, its dropped ones, its counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hashtune import spelling
from hashtune.chat.columns import token_column
from hashtune.chat.examples import Tokenized
from hashtune.chat.summary import SAMPLES, Tally, tally
from hashtune.errors import Finding, InputError
from hashtune.records import Conversation, Dropped, Example, example_schema

if TYPE_CHECKING:
    import pyarrow as pa

Fit = Callable[..., tuple[list[Example], list[Dropped]]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became of some conversations, in their order.

    `table` holds the kept examples (columns of example_schema), `samples` the first few of them,
    `dropped` a line for each example of which something is lost.
    With `findings` (rows that are refused) or `too_long` (over-long ones, where that is an error)
    the rest is empty.
    """

    table: "pa.Table"
    samples: list[Example]
    dropped: list[Dropped]
    counts: Tally
    findings: list[Finding]
    too_long: list[Finding]


def tokenize_rows(
    rows: Sequence[Mapping[str, Any]], *, tokenize: Callable[[Conversation], Tokenized], limit: Fit
) -> Chunk:
    """The chunk of these rows of build/prepare/*.parquet; findings are returned, not raised."""
    done: list[Tokenized] = []
    findings: list[Finding] = []
    for row in rows:
        try:
            messages = spelling.loads(row["messages"])
            done.append(tokenize(Conversation(**{**row, "messages": messages})))
        except InputError as error:
            findings += error.findings
    if findings:
        return Chunk(_table([]), [], [], Tally(), findings, [])
    every = [example for item in done for example in item.examples]
    try:
        kept, dropped = limit(every, lines={row["id"]: row["line"] for row in rows})
    except InputError as error:
        return Chunk(_table([]), [], [], Tally(), [], list(error.findings))
    counts = tally(
        kept,
        dropped,
        every=every,
        texts=[item.text for item in done for _ in item.examples],
        conversations=len(rows),
        turns=sum(item.turns for item in done),
        altered=sum(bool(item.altered) for item in done),
        escaped=sum(bool(item.escaped) for item in done),
    )
    return Chunk(_table(kept), kept[:SAMPLES], dropped, counts, [], [])


def _table(examples: Sequence[Example]) -> "pa.Table":
    import pyarrow as pa

    columns = [
        token_column([getattr(example, field.name) for example in examples])
        if pa.types.is_list(field.type)
        else pa.array([getattr(example, field.name) for example in examples], type=field.type)
        for field in example_schema()
    ]
    return pa.Table.from_arrays(columns, schema=example_schema())
