"""What tokenize makes of the rows that survive reading, with all its proofs, in-process."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from fuzz.case import ANYTHING, Case
from fuzz.make import short
from fuzz.templates import LIMIT, TEMPLATES, Outcome, plain
from hashtune.chat import chunks, summary
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.over_length import fit
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.data.schemas import as_row
from hashtune.records import IGNORE_INDEX, Conversation
from hashtune.store.loader import generation_eos_ids, load_tokenizer, resolve
from hashtune.store.manifest import Manifest, Source

DATE = "2026-01-01"
Row = Mapping[str, Any]


@cache
def synthetic() -> Manifest:
    """The synthetic base, in the store that HASHTUNE_HOME names."""
    source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
    return resolve(source, name="tiny", say=lambda _: None)


@cache
def _tokenizer() -> Any:
    return load_tokenizer(synthetic())


@cache
def _tokenize(name: str) -> Any:
    """The conversation's examples under the template of this name."""
    template = Template(_tokenizer(), TEMPLATES[name], {}, DATE)
    stops = stop_sequences(template, eos_ids=generation_eos_ids(synthetic()), declared=[])
    return partial(
        tokenize_conversation,
        template=template,
        stops=stops,
        loss_on="assistant",
        unstable="error",
        mismatch="error",
    )


def outcomes(case: Case) -> dict[int, Outcome]:
    """What tokenize must make of each kept line."""
    return {line: case.outcomes.get(line) or plain(case.kept[line]) for line in case.kept}


def token_faults(case: Case, conversations: Sequence[Conversation]) -> Iterator[str]:
    """Tokenize the rows, then without those that were refused; say what is not as stated."""
    rows = [as_row(replace(row, id=f"{row.id}.{row.line}")) for row in conversations]
    expected = outcomes(case)
    free = {line for rule, line in case.damaged if rule == ANYTHING}
    chunk = _chunk(case, rows)
    said = chunk.findings
    for line, outcome in expected.items():
        rules = {found.rule for found in said if found.line == line}
        if bool(rules) != bool(outcome.rule) or (rules and outcome.rule not in rules):
            yield f"line {line}: tokenize finds {rules or 'nothing'}, expected {outcome.rule!r}"
    refused = {found.line for found in said}
    if not refused <= expected.keys() | free:
        yield f"findings of lines {refused}, where there are {sorted(expected)}"
    if refused:
        rows = [row for row in rows if row["line"] not in refused]
        chunk = _chunk(case, rows)
    yield from _kept_faults({k: v for k, v in expected.items() if not v.rule}, free, rows, chunk)
    yield from _count_faults(len(rows), chunk)
    if chunk.dropped:
        too_long = [found.line for found in _chunk(case, rows, "error").too_long]
        if too_long != [line.line for line in chunk.dropped]:
            yield f"over-long: findings of lines {too_long}, ledger {short(chunk.dropped)}"


def _chunk(case: Case, rows: Sequence[Row], over_length: str = "drop") -> chunks.Chunk:
    limit = partial(fit, max_seq_len=LIMIT, over_length=over_length)
    return chunks.tokenize_rows(rows, tokenize=_tokenize(case.template), limit=limit)


def _kept_faults(
    expected: Mapping[int, Outcome], free: set[int], rows: Sequence[Row], chunk: chunks.Chunk
) -> Iterator[str]:
    lines = {row["id"]: row["line"] for row in rows}
    said = {lines[row["conversation_id"]]: row for row in chunk.table.to_pylist()}
    long = {dropped.line for dropped in chunk.dropped if dropped.reason == "over_length"}
    if said.keys() | long != expected.keys() | (free & (said.keys() | long)):
        yield f"tokenized lines {sorted(said)}, over-long {sorted(long)}"
    for line, outcome in expected.items():
        if outcome.long != (line in long):
            yield f"line {line}: over-long is {line in long}"
        elif line in said and (fault := trained_fault(said[line], outcome)):
            yield f"line {line}: {fault}"


def trained_fault(example: Row, outcome: Outcome) -> str | None:
    """What is wrong with the trained texts of an example, or None.

    Blanks at the start of an answer may share a token with the prompt's end: not trained then.
    """
    runs = groupby(example["labels"], key=lambda label: label != IGNORE_INDEX)
    texts = [_tokenizer().decode(list(run)) for trained, run in runs if trained]
    wanted = [
        text[len(text) - len(seen) :]
        if example["straddling"] and _lacks_blanks(text, seen)
        else text
        for text, seen in zip(outcome.trained, texts, strict=False)
    ]
    if len(texts) == len(outcome.trained) and texts == wanted:
        return None
    return f"trained is {short(texts)}, expected {short(outcome.trained)}"


def _lacks_blanks(text: str, seen: str) -> bool:
    return text.endswith(seen) and text[: len(text) - len(seen)].isspace()


def _count_faults(rows: int, chunk: chunks.Chunk) -> Iterator[str]:
    """Rows in = kept + dropped, in what the stage would report."""
    report = summary.summarise(chunk.counts, chunk.samples, tokenizer=_tokenizer())
    json.dumps(report, allow_nan=False)
    if not rows == report["rows_in"] == report["kept"] + sum(report["dropped"].values()):
        yield f"{rows} rows in, report says {short(report)}"
    if chunk.table.num_rows != report["kept"] or len(chunk.dropped) != rows - report["kept"]:
        yield f"report keeps {report['kept']}, table has {chunk.table.num_rows}"


def warm_up() -> None:
    """Import and compile what all files share, before any alarm is set."""
    for name in TEMPLATES:
        _tokenize(name)


def use_home(folder: Path) -> dict[str, str]:
    """What the environment needs so that the base lies in `folder`, not in the user's store."""
    return {"HASHTUNE_HOME": str(folder / "home"), "TOKENIZERS_PARALLELISM": "false"}
