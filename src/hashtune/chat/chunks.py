"""A chunk of conversations at a time: its examples as columns, its dropped ones, its counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hashtune import spelling
from hashtune.chat.columns import token_column
from hashtune.chat.examples import Tokenized
from hashtune.chat.policy import OnBadRow, dropped_row, may_drop
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
    `dropped` a line for each row that the policy drops and each example of which something is lost,
    in the order of the rows; `dismissed` are the findings of the former.
    With `findings` (rows that are refused) or `too_long` (over-long ones, where that is an error)
    the table is empty, and `counts` has only the rows and what the policy dropped of them.
    """

    table: "pa.Table"
    samples: list[Example]
    dropped: list[Dropped]
    counts: Tally
    findings: list[Finding]
    too_long: list[Finding]
    dismissed: list[Finding]


def tokenize_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    tokenize: Callable[[Conversation], Tokenized],
    limit: Fit,
    on_bad_row: OnBadRow = "error",
) -> Chunk:
    """The chunk of these rows of build/prepare/*.parquet; findings are returned, not raised."""
    done: list[Tokenized] = []
    kept: list[Example] = []
    ledger: list[Dropped] = []
    bad: list[Dropped] = []
    findings: list[Finding] = []
    too_long: list[Finding] = []
    dismissed: list[Finding] = []
    for row in rows:
        try:
            messages = spelling.loads(row["messages"])
            item = tokenize(Conversation(**{**row, "messages": messages}))
        except InputError as error:
            if may_drop(error.findings, on_bad_row):
                dismissed += error.findings
                bad.append(dropped_row(row, error.findings))
                ledger.append(bad[-1])
            else:
                findings += error.findings
            continue
        done.append(item)
        try:
            fitting, lines = limit(item.examples, lines={row["id"]: row["line"]})
        except InputError as error:
            too_long += error.findings
            continue
        kept += fitting
        ledger += lines
    if findings or too_long:
        counts = _counts([], kept=[], ledger=bad, rows=len(rows))
        too_long = [] if findings else too_long
        return Chunk(_table([]), [], [], counts, findings, too_long, dismissed)
    counts = _counts(done, kept=kept, ledger=ledger, rows=len(rows))
    return Chunk(_table(kept), kept[:SAMPLES], ledger, counts, [], [], dismissed)


def _counts(
    done: Sequence[Tokenized], *, kept: Sequence[Example], ledger: Sequence[Dropped], rows: int
) -> Tally:
    return tally(
        kept,
        ledger,
        every=[example for item in done for example in item.examples],
        texts=[item.text for item in done for _ in item.examples],
        conversations=rows,
        turns=sum(item.turns for item in done),
        altered=sum(bool(item.altered) for item in done),
        escaped=sum(bool(item.escaped) for item in done),
        unprompted=sum(item.unprompted for item in done),
        masked=sum(item.masked for item in done),
    )


def _table(examples: Sequence[Example]) -> "pa.Table":
    import pyarrow as pa

    columns = [
        token_column([getattr(example, field.name) for example in examples])
        if pa.types.is_list(field.type)
        else pa.array([getattr(example, field.name) for example in examples], type=field.type)
        for field in example_schema()
    ]
    return pa.Table.from_arrays(columns, schema=example_schema())
