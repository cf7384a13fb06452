"""Tokens as text: runs of one kind, control tokens apart, every invisible character visible."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX

BROKEN = "\ufffd"  # what decoding a part of a character gives


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring tokens that are all trained or all not, and all control tokens or all not.

    `tokens` are pairs of id and text; empty for text that was never tokenized.
    """

    text: str
    trained: bool = False
    control: bool = False
    tokens: tuple[tuple[int, str], ...] = ()


def control_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of the tokens that a template prints and a text should not hold."""
    added = tokenizer.added_tokens_decoder
    return frozenset(tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}


def pieces(
    ids: Sequence[int], labels: Sequence[int], tokenizer: Any, control: frozenset[int]
) -> list[Piece]:
    """The pieces of a document; their texts together are what the ids decode to.

    Raises:
        InputError: an id is outside the tokenizer's vocabulary (it belongs to another tokenizer).
    """
    strange = [token for token in ids if not 0 <= token < len(tokenizer)]
    if strange:
        message = f"id {strange[0]} is not in the base's vocabulary of {len(tokenizer)}"
        raise InputError(Finding("other-tokenizer", message, fix="dvc repro pack"))
    kinds = [
        (label != IGNORE_INDEX, token in control) for token, label in zip(ids, labels, strict=True)
    ]
    found: list[Piece] = []
    for (trained, special), group in groupby(range(len(ids)), key=kinds.__getitem__):
        places = list(group)
        first, end = places[0], places[-1] + 1
        text = _decode(ids, first, end, tokenizer)
        tokens = tuple((ids[place], _token_text(ids, place, tokenizer)) for place in places)
        found.append(Piece(text, trained, special, tokens))
    return found


def _token_text(ids: Sequence[int], place: int, tokenizer: Any) -> str:
    """A token's text; its vocabulary entry where it is a part of a character."""
    text = _decode(ids, place, place + 1, tokenizer)
    return str(tokenizer.convert_ids_to_tokens(ids[place])) if BROKEN in text else text


def _decode(ids: Sequence[int], first: int, end: int, tokenizer: Any) -> str:
    """The text of ids[first:end] behind the token before it: decoders drop a leading blank."""

    def text(part: Sequence[int]) -> str:
        return str(tokenizer.decode(list(part), clean_up_tokenization_spaces=False))

    if first:
        before, both = text(ids[first - 1 : first]), text(ids[first - 1 : end])
        if both.startswith(before) and BROKEN not in before:
            return both[len(before) :]
    return text(ids[first:end])


def spans(labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last place of each run of trained tokens."""
    on = [label != IGNORE_INDEX for label in labels]
    for trained, group in groupby(range(len(on)), key=on.__getitem__):
        places = list(group)
        if trained:
            yield places[0], places[-1]
