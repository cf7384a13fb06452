"""Labels of an encoding: which tokens lie wholly inside the spans of text that are trained."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import le
from typing import Any

from hashtune.chat.template import Template
from hashtune.records import IGNORE_INDEX

Span = tuple[int, int]
Labelled = tuple[list[int], tuple[int, ...]]  # labels, and the places of straddling tokens
NO_CORES: Mapping[int, Span] = {}
BLANKS = ("Ġ", "Ċ", "ĉ", "č", "▁", " ")  # how vocabularies spell a leading blank


def label_text(
    template: Template, text: str, spans: Sequence[Span]
) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Ids of a rendered text, their labels and straddlers (as label_tokens counts them), by the
    quickest way that is sure.

    Args:
        template: the pinned template; its tokenizer encodes.
        text: what it rendered, perhaps with marks of control.escape.
        spans: ranges of characters that are trained, ascending.
    """
    ids = template.ids(text)
    if template.pieces and (found := label_bytes(ids, template.piece_sizes, text, spans)):
        return ids, *found
    cores = _cores(template, text, ids)
    return ids, *label(template.encoding(text), ids, spans, cores)


def _cores(template: Template, text: str, ids: Sequence[int]) -> dict[int, Span]:
    """Where the text of each added token stands that takes the blanks beside it (Phi-3's `<|end|>`
    and the newline behind it), by the token's place: its offsets have the blanks too."""
    if not template.stripping:
        return {}
    cores = {}
    for place, (token, offset) in enumerate(zip(ids, template.encoding(text).offsets, strict=True)):
        if token in template.stripping:
            own, _ = template.stripping[token]
            start = text.index(own, offset[0])
            cores[place] = start, start + len(own)
    return cores


def label(
    encoded: Any, ids: Sequence[int], spans: Sequence[Span], cores: Mapping[int, Span] = NO_CORES
) -> Labelled:
    """Labels and straddlers from an encoding of the backend, or control.Encoded."""
    offsets = encoded.offsets
    aligned = None if cores else label_aligned(ids, offsets, spans)
    return aligned or label_tokens(ids, encoded.tokens, offsets, spans, cores)


def label_bytes(
    ids: Sequence[int], sizes: Mapping[int, int], text: str, spans: Sequence[Span]
) -> Labelled | None:
    """What label_tokens gives, from the number of bytes that each id stands for.

    None where the ids are longer or shorter than the text (a mark, a normaliser), or a span's edge
    is no edge between two tokens. Ids without offsets come from the backend in three quarters of
    the time.
    """
    ends = list(accumulate(map(sizes.__getitem__, ids), initial=0))
    total = len(text) if text.isascii() else len(text.encode("utf-8"))
    if ends[-1] != total:
        return None
    labels = [IGNORE_INDEX] * len(ids)
    for start, end in spans if text.isascii() else _in_bytes(text, spans):
        first, past = bisect_left(ends, start), bisect_left(ends, end)
        if ends[first : first + 1] != [start] or ends[past : past + 1] != [end]:
            return None
        labels[first:past] = ids[first:past]
    return labels, ()


def _in_bytes(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """The spans as ranges of UTF-8 bytes; each character is counted once."""
    read = place = 0
    for start, end in spans:
        begin = place + len(text[read:start].encode("utf-8"))
        read, place = end, begin + len(text[start:end].encode("utf-8"))
        yield begin, place


def label_tokens(
    ids: Sequence[int],
    pieces: Sequence[str],
    offsets: Sequence[Span],
    spans: Sequence[Span],
    cores: Mapping[int, Span] = NO_CORES,
) -> Labelled:
    """Labels (the id where all characters of the token lie in a span, else -100) and straddlers.

    Of a token in `cores` those characters count, not the blanks that it takes: the model writes the
    same token whatever blanks the template prints behind it.
    """
    labels = [IGNORE_INDEX] * len(ids)
    straddlers = []
    reached, current = 0, 0
    for index, offset in enumerate(offsets):
        begin, end = _extent(pieces[index], offset, reached)
        reached = max(reached, end)
        while current < len(spans) and spans[current][1] <= begin:
            current += 1
        if current == len(spans):
            break
        first, last = spans[current]
        low, high = cores.get(index, (begin, end))
        if first <= low and high <= last:
            labels[index] = ids[index]
        elif begin < first < end:
            straddlers.append(index)
    return labels, tuple(straddlers)


def _extent(piece: str, offset: Span, reached: int) -> Span:
    """The characters of a token, where a tokenizer may trim blanks off its offsets.

    A piece that begins with a blank has those since the last token. One of blanks alone has an
    empty offset when trimmed: behind its blanks, or before them at the start of a text.
    """
    start, end = offset
    if not piece.startswith(BLANKS):
        return offset
    begin = min(start, reached)
    trimmed = start == end and not piece.strip("Ġ")
    return begin, max(end, begin + len(piece)) if trimmed else end


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
