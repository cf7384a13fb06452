"""Sheets: what is shown of an example, a packed row, an optimizer step or a dropped row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from hashtune import spelling
from hashtune.inspection.pieces import Piece, control_ids, pieces, spans
from hashtune.records import trained_count

Record = Mapping[str, Any]
SHOWN_SPANS = 8
BARS, BAR_WIDTH = 10, 40  # ranges of a plot, characters of its longest bar


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a sheet: a heading ("" for none) and its text."""

    heading: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A title, lines of facts, and the documents."""

    title: str
    facts: Sequence[str]
    documents: Sequence[Document] = ()


def example_sheet(example: Record, tokenizer: Any, *, split: str) -> Sheet:
    """An example: a dict of records.example_schema."""
    ids, labels = example["input_ids"], example["labels"]
    facts = [f"source {example['source']}, conversation {example['conversation_id']}"]
    facts.append(_trained(labels))
    if example["straddling"]:
        facts.append(f"{example['straddling']} tokens reach into a body and are not trained")
    shown = Document("", pieces(ids, labels, tokenizer, control_ids(tokenizer)))
    return Sheet(f"{split} example {example['id']}", facts, [shown])


def row_sheet(row: Record, tokenizer: Any, *, split: str, step: Record | None = None) -> Sheet:
    """A packed row (a dict of records.row_schema) with a border before each document.

    With `step` (records.step_schema) also the row's weight in it: its share of the trained tokens,
    which is its share of the step's loss.
    """
    control = control_ids(tokenizer)
    count = len(row["lengths"])
    documents = []
    edges = pairwise(accumulate(row["lengths"], initial=0))
    for number, (name, (start, end)) in enumerate(zip(row["example_ids"], edges, strict=True), 1):
        labels = row["labels"][start:end]
        heading = f"document {number} of {count}: {name}, {_trained(labels)}"
        part = pieces(row["input_ids"][start:end], labels, tokenizer, control)
        documents.append(Document(heading, part))
    facts = [_trained(row["labels"])]
    if step is not None:
        facts.append(f"weight {_weight(row, step)} in step {step['step']}")
    return Sheet(f"{split} row {row['row']}", facts, documents)


def step_sheet(step: Record, rows: Sequence[Record]) -> Sheet:
    """An optimizer step: its rows, in the order they are seen, and what each weighs."""
    facts = [f"epoch {step['epoch']}, {step['tokens']} tokens, {step['trained_tokens']} trained"]
    facts += [
        f"row {row['row']}: weight {_weight(row, step)}, {len(row['input_ids'])} tokens in "
        f"{len(row['lengths'])} documents"
        for row in rows
    ]
    return Sheet(f"step {step['step']}", facts)


def dropped_sheet(
    line: Record,
    *,
    messages: str | None = None,
    raw: str | None = None,
    withheld: str | None = None,
) -> Sheet:
    """A ledger line; with the conversation (JSON text), or the raw line of the file, if known;
    `withheld` says why neither is shown."""
    detail = f": {line['detail']}" if line["detail"] else ""
    facts = [f"{line['stage']}: {line['reason']}{detail}"]
    facts += [f"the text is not shown: {withheld}"] if withheld else []
    title = f"{line['source']}:{line['line']} ({line['id']})"
    documents = [Document("", [Piece(raw)])] if raw else []
    for message in spelling.loads(messages) if messages else []:
        content = message.get("content")
        text = content if isinstance(content, str) else spelling.dumps(content, ensure_ascii=False)
        documents.append(Document(str(message["role"]), [Piece(text)]))
    return Sheet(title, facts, documents)


def lengths_sheet(
    report: Record, *, split: str, histogram: tuple[Sequence[int], Sequence[int]] = ((), ())
) -> Sheet:
    """What limits lose under each over_length: a split of reports/tokenize.json; and as a plot the
    distinct lengths (ascending) with how many examples have each."""
    ascending = sorted(report["lengths"].items(), key=lambda item: (item[1], item[0] == "max"))
    percentiles = ", ".join(f"{name} {value}" for name, value in ascending)
    facts = [f"{report['examples']['in']} examples; tokens: {percentiles or 'none'}"]
    facts += ["data.over_length=drop", *_limits(report)]
    facts += ["data.over_length=split", *_limits(report["split"])]
    facts += bars(*histogram)
    return Sheet(f"{split} lengths", facts)


def bars(lengths: Sequence[int], counts: Sequence[int]) -> list[str]:
    """A plot of the lengths: up to 10 ranges of equal width, with examples and a bar for each; a
    range that holds any has a mark."""
    if not lengths:
        return []
    width = -(-lengths[-1] // BARS)
    inside = [0] * -(-lengths[-1] // width)
    for length, count in zip(lengths, counts, strict=True):
        inside[(length - 1) // width] += count
    first, digits = max(3, len(str(lengths[-1]))), max(len(str(max(inside))), len("examples"))
    lines = [f"{'tokens':>{2 * first + 1}}  {'examples':>{digits}}"]
    for number, count in enumerate(inside):
        last = min((number + 1) * width, lengths[-1])
        mark = "#" * -(-BAR_WIDTH * count // max(inside))
        span = f"{number * width + 1:>{first}}-{last:<{first}}"
        lines.append(f"{span}  {count:>{digits}}  {mark}".rstrip())
    return lines


def _limits(table: Record) -> list[str]:
    columns = ("max_seq_len", "examples_lost", "turns_lost", "tokens_lost", "trained_tokens_lost")
    rows = [
        "  ".join(f"{row[column]:>{len(column)}}" for column in columns) for row in table["limits"]
    ]
    said = {
        "loses_nothing": "loses nothing",
        "loses_one_percent": "loses at most 1 % of the trained tokens",
    }
    chosen = [
        f"data.max_seq_len={limit} {said[name]}"
        for name, limit in table["suggested_max_seq_len"].items()
    ]
    return ["  ".join(columns), *rows, *chosen]


def _weight(row: Record, step: Record) -> str:
    trained = trained_count(row["labels"])
    return f"{trained / step['trained_tokens']:.4f} ({trained} of {step['trained_tokens']} trained)"


def _trained(labels: Sequence[int]) -> str:
    """ "31 of 77 tokens trained (40.3 %): 45-75"; places count from 0."""
    runs = list(spans(labels))
    trained = trained_count(labels)
    share = f" ({trained / len(labels):.1%})" if labels else ""
    shown = ", ".join(f"{first}-{last}" for first, last in runs[:SHOWN_SPANS])
    more = f" and {len(runs) - SHOWN_SPANS} more spans" if len(runs) > SHOWN_SPANS else ""
    return f"{trained} of {len(labels)} tokens trained{share}: {shown or 'none'}{more}"
