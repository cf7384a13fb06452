"""Examples that are too long: dropped, refused, or cut behind the last trained turn that fits.

    example            <s> <|user|> h i <|end|> <|assistant|> y o <|end|> <|user|> ? <|end|> ...
    split at 9 to 11   <s> <|user|> h i <|end|> <|assistant|> y o <|end|>

What is kept is the beginning of the example, ids and labels: each kept turn is trained on what
inference sees, through its stop, and an answer is never cut. The place comes from the labels; it is
proven by the stops.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Dropped, Example

WHOLE, CUT = "over_length", "over_length_cut"  # reasons in the ledger: all of it, or its end


def fit(
    examples: Sequence[Example],
    *,
    max_seq_len: int,
    over_length: Literal["drop", "error", "split"],
    lines: Mapping[str, int],
    stop_ids: Collection[tuple[int, ...]] = (),
) -> tuple[list[Example], list[Dropped]]:
    """Examples of at most max_seq_len tokens, and a ledger line for each longer one.

    Args:
        examples: all of them; plain texts that are split come in pieces (texts.py).
        max_seq_len: tokens.
        over_length: what becomes of a longer one. "split" drops it too (reason WHOLE) where not
            even its first trained turn fits, else its beginning is kept (reason CUT).
        lines: input line by conversation id.
        stop_ids: ids of the stops, one of which must end what "split" keeps.

    Raises:
        InputError: an example is too long and the policy is "error" (all of them are listed), or a
            cut is not proven.
    """
    long = [example for example in examples if len(example.input_ids) > max_seq_len]
    if long and over_length == "error":
        raise InputError(_refusal(example, max_seq_len, lines) for example in long)
    kept: list[Example] = []
    ledger: list[Dropped] = []
    faults: list[Finding] = []
    for example in examples:
        if len(example.input_ids) <= max_seq_len:
            kept.append(example)
            continue
        reason, detail = WHOLE, _dropped_detail(example, max_seq_len)
        line = lines[example.conversation_id]
        if over_length == "split" and (part := beginning(example, max_seq_len)):
            reason, detail = CUT, _cut_detail(example, part, max_seq_len)
            kept.append(part)
            faults += [
                Finding("proof", text, file=example.source, line=line)
                for text in prove_cut(example, part, max_seq_len, stop_ids)
            ]
        ledger.append(Dropped(example.id, example.source, line, reason, detail))
    if faults:
        raise InputError(faults)
    return kept, ledger


def beginning(example: Example, limit: int) -> Example | None:
    """The example through the last trained turn that ends within `limit` tokens; None for none."""
    end = max((end for end in turn_ends(example.labels) if end <= limit), default=None)
    if end is None:
        return None
    return replace(
        example,
        input_ids=example.input_ids[:end],
        labels=example.labels[:end],
        straddlers=tuple(place for place in example.straddlers if place < end),
    )


def turn_ends(labels: Sequence[int]) -> list[int]:
    """Where each run of trained tokens ends: the places behind their last tokens, ascending."""
    following = [*labels[1:], IGNORE_INDEX]
    return [
        place
        for place, (own, after) in enumerate(zip(labels, following, strict=True), 1)
        if own != IGNORE_INDEX and after == IGNORE_INDEX
    ]


def prove_cut(
    whole: Example, part: Example, limit: int, stop_ids: Collection[tuple[int, ...]]
) -> Iterator[str]:
    """What is wrong with a cut: it must keep a beginning that ends with a trained stop, within the
    limit and behind its turn, and no longer one would do."""
    end = len(part.input_ids)
    if (part.input_ids, part.labels) != (whole.input_ids[:end], whole.labels[:end]):
        yield "what is kept is no beginning of the example"
    elif end > limit:
        yield f"{end} tokens are kept, {limit} were allowed"
    elif not _closes(whole, end, stop_ids):
        yield f"the cut at token {end} is not the end of a trained turn"
    for place in range(limit, end, -1):
        if _closes(whole, place, stop_ids):
            yield f"the cut at token {end} loses the trained turn that ends at {place}"
            break


def _closes(example: Example, end: int, stop_ids: Collection[tuple[int, ...]]) -> bool:
    """Whether a trained stop ends just before this place, and training with it."""
    if example.labels[end : end + 1] not in ([], [IGNORE_INDEX]):
        return False
    return any(
        tuple(example.input_ids[max(0, end - len(stop)) : end]) == stop
        and IGNORE_INDEX not in example.labels[end - len(stop) : end]
        for stop in stop_ids
    )


def _refusal(example: Example, limit: int, lines: Mapping[str, int]) -> Finding:
    fix = (
        "raise data.max_seq_len, or set data.over_length to drop or split (`hashtune inspect "
        "--lengths` then tells what other values would lose)"
    )
    detail = _dropped_detail(example, limit)
    line = lines[example.conversation_id]
    return Finding("over-length", detail, file=example.source, line=line, fix=fix)


def _dropped_detail(example: Example, limit: int) -> str:
    trained = [label != IGNORE_INDEX for label in example.labels]
    prompt = trained.index(True) if True in trained else len(trained)
    left, every = sum(trained[:limit]), sum(trained)
    return (
        f"{left} supervised tokens after truncation to {limit} (prompt alone is {prompt}), end "
        f"marker lost: {len(trained)} tokens, {every} of them supervised, exceed {limit}"
    )


def _cut_detail(whole: Example, part: Example, limit: int) -> str:
    turns, kept = len(turn_ends(whole.labels)), len(turn_ends(part.labels))
    names = f"{kept + 1} to {turns}" if kept + 1 < turns else f"{turns}"
    lost = whole.trained_tokens - part.trained_tokens
    said = (
        f"trained turns lost: {names} of {turns}, {lost} of {whole.trained_tokens} trained tokens"
    )
    return (
        f"{len(whole.input_ids)} tokens exceed {limit}: the first {len(part.input_ids)} are kept; "
        f"{said if kept < turns else 'no trained turn is lost'}"
    )
