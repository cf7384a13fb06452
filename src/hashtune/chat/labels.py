"""Labels of an encoding: which tokens lie wholly inside the spans of text that are trained."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import le
from typing import Any

from hashtune.chat.control import Encoded
from hashtune.records import IGNORE_INDEX

Span = tuple[int, int]
Labelled = tuple[list[int], tuple[int, ...]]  # labels, and the places of straddling tokens
BLANKS = ("Ġ", "Ċ", "ĉ", "č", "▁", " ")  # how vocabularies spell a leading blank
FEW = 3  # so many spans are looked up in the encoding, each at a cost linear in its tokens


def label(encoded: Any, ids: Sequence[int], spans: Sequence[Span]) -> Labelled:
    """Labels and straddlers as label_tokens gives them, by the quickest way that is sure.

    Args:
        encoded: the backend's encoding of a text, or control.Encoded of an escaped one.
        ids: its ids.
        spans: ranges of characters, ascending.
    """
    whole = not isinstance(encoded, Encoded)  # the backend knows nothing of ids left out
    if whole and len(spans) <= FEW and (found := label_edges(encoded, ids, spans)):
        return found
    offsets = encoded.offsets
    return label_aligned(ids, offsets, spans) or label_tokens(ids, encoded.tokens, offsets, spans)


def label_edges(encoded: Any, ids: Sequence[int], spans: Sequence[Span]) -> Labelled | None:
    """What label_tokens gives, from the tokens at the edges of the spans alone.

    None where a span's edge is no edge between two tokens. Offsets ascend in every encoding.
    """
    labels = [IGNORE_INDEX] * len(ids)
    for start, end in spans:
        first, last = encoded.char_to_token(start), encoded.char_to_token(end - 1)
        if first is None or last is None or encoded.token_to_chars(first)[0] != start:
            return None
        before = encoded.token_to_chars(first - 1) if first else (-1, 0)
        after = encoded.token_to_chars(last + 1) if last + 1 < len(ids) else (end, end)
        if before[0] >= start or before[1] != start:
            return None
        if encoded.token_to_chars(last)[1] != end or after[0] < end:
            return None
        labels[first : last + 1] = ids[first : last + 1]
    return labels, ()


def label_tokens(
    ids: Sequence[int], pieces: Sequence[str], offsets: Sequence[Span], spans: Sequence[Span]
) -> Labelled:
    """Labels (the id where all characters of the token lie in a span, else -100) and straddlers.

    A piece that begins with a blank may have an offset without it (a tokenizer that trims
    offsets): then the characters since the last token belong to it.
    """
    labels = [IGNORE_INDEX] * len(ids)
    straddlers = []
    reached, current = 0, 0
    for index, (start, end) in enumerate(offsets):
        begin = min(start, reached) if pieces[index].startswith(BLANKS) else start
        reached = max(reached, end)
        while current < len(spans) and spans[current][1] <= begin:
            current += 1
        if current == len(spans):
            break
        first, last = spans[current]
        if first <= begin and end <= last:
            labels[index] = ids[index]
        elif begin < first < end:
            straddlers.append(index)
    return labels, tuple(straddlers)


def label_aligned(
    ids: Sequence[int], offsets: Sequence[Span], spans: Sequence[Span]
) -> Labelled | None:
    """What label_tokens gives, at once, where offsets leave no gap and spans end at tokens' ends.

    None where they do not.
    """
    starts, ends = zip(*offsets, strict=True) if offsets else ((), ())
    if starts[1:] != ends[:-1] and not _without_gaps(starts, ends):
        return None
    labels = [IGNORE_INDEX] * len(ids)
    for start, end in spans:
        first, stop = bisect_left(starts, start), bisect_left(starts, end)
        if first >= stop or starts[first] != start or ends[stop - 1] != end:
            return None
        if first and ends[first - 1] > start:
            return None
        labels[first:stop] = ids[first:stop]
    return labels, ()


def _without_gaps(starts: Sequence[int], ends: Sequence[int]) -> bool:
    """Ascending, and no character between two tokens; several may be parts of one character."""
    ascending = all(map(le, starts, starts[1:])) and all(map(le, ends, ends[1:]))
    return ascending and all(map(le, starts[1:], ends))
