"""The records that flow between stages, and their Parquet columns.

conversation -> example (tokenized conversation or turn) -> document (an example inside a row)
-> row (packed sequence) -> micro-batch -> step (optimizer step).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Message = dict[str, Any]
IGNORE_INDEX = -100  # label of a token without loss, as torch's cross_entropy reads it
REASONING = ("reasoning_content", "thinking", "reasoning")  # fields of a message
TEXT = "text"  # role of the only message of a plain text, which is no conversation


def trained_count(labels: Sequence[int]) -> int:
    """Number of labels that are not -100."""
    return len(labels) - labels.count(IGNORE_INDEX)


def contradicts_itself(message: Message) -> bool:
    """Whether `train` (true or false) and `weight` (0 or 1) say opposite things of its loss."""
    train, weight = message.get("train"), message.get("weight")
    return isinstance(train, bool) and weight in (0, 1) and train != bool(weight)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation: `messages` are dicts with "role", "content" and optional other fields.

    A plain text is one message of the role TEXT.

    `id` is content-derived (first 16 hex digits of the sha256 of the canonical messages),
    `source` names the declared source ("triage", "replay"), `line` its 1-based input line.
    """

    id: str
    source: str
    messages: list[Message]
    line: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A tokenized conversation (or turn).

    input_ids and labels have equal length; labels[i] is input_ids[i] or -100 (label at the
    token's own position; the loss shifts). `straddlers` are the places of the tokens that reach
    from a prompt into a body and are therefore not trained; a row in Parquet holds their number,
    `straddling`, and the other fields.
    """

    id: str
    conversation_id: str
    source: str
    input_ids: list[int]
    labels: list[int]
    straddlers: tuple[int, ...] = ()

    @property
    def straddling(self) -> int:
        """Number of tokens that reach from a prompt into a body."""
        return len(self.straddlers)

    @property
    def trained_tokens(self) -> int:
        """Number of labels that are not -100."""
        return trained_count(self.labels)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A ledger line: what was dropped, where it came from and why."""

    id: str
    source: str
    line: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A packed row: concatenated documents, explicit lengths; sum(lengths) == len(input_ids)."""

    row: int
    example_ids: list[str]
    lengths: list[int]
    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)


def conversation_schema() -> "pa.Schema":
    """Columns of build/prepare/*.parquet; `messages` is JSON text, so that every value and the
    order of keys stay as written."""
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            ("source", pa.string()),
            ("line", pa.int64()),
            ("group", pa.string()),
            ("messages", pa.string()),
        ]
    )


def example_schema() -> "pa.Schema":
    """Columns of build/tokenize/{train,eval}.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            ("conversation_id", pa.string()),
            ("source", pa.string()),
            ("input_ids", pa.list_(pa.int32())),
            ("labels", pa.list_(pa.int32())),
            ("straddling", pa.int32()),
        ]
    )


def row_schema() -> "pa.Schema":
    """Columns of build/pack/{train,eval}.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            ("row", pa.int64()),
            ("example_ids", pa.list_(pa.string())),
            ("lengths", pa.list_(pa.int32())),
            ("input_ids", pa.list_(pa.int32())),
            ("labels", pa.list_(pa.int32())),
        ]
    )


def step_schema() -> "pa.Schema":
    """Columns of build/pack/steps.parquet: which rows an optimizer step sees, in order."""
    import pyarrow as pa

    return pa.schema(
        [
            ("step", pa.int64()),
            ("epoch", pa.int64()),
            ("rows", pa.list_(pa.int64())),
            ("trained_tokens", pa.int64()),
            ("tokens", pa.int64()),
        ]
    )
