"""All bodies of a long conversation from a few renders of the whole, at a cost linear in its turns.

Four renders of the whole conversation (real; the other roles' contents replaced by marks; the
answers replaced too, in two ways), and two more where a call has no arguments, say where each
answer's fields begin and end. How far the prompt reaches, and that the answer stands in the whole
as inference would write it, is the per-turn definition's word: `exact` is asked about the first and
the last turn of every combination of template features, the last turn and one more turn of the
conversation. Wherever a render, a place or such a turn does not fit, the answer is None and every
turn is derived by itself.
"""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hashtune.chat.features import Key, turn_keys
from hashtune.chat.messages import ASSISTANT
from hashtune.chat.reasoning import left_open
from hashtune.chat.sentinels import calls_bare, common_suffix, vary
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import InputError
from hashtune.records import Message

FEW = 3  # so many trained turns are derived one by one, always
Exact = Callable[[int], tuple[str, int, int]]  # text of messages[:turn+1], start and end of a body


@dataclass(frozen=True, slots=True)
class Place:
    """Characters of the whole text: the other message's content ends at `after`, the answer's
    fields end at `fields_end`, and `tail` is the template's text from there to the next content."""

    after: int
    fields_end: int
    tail: str


def all_at_once(
    template: Template,
    messages: Sequence[Message],
    turns: Sequence[int],
    stops: StopSet,
    exact: Exact,
) -> tuple[str, list[tuple[int, int]]] | None:
    """The text of the conversation and the body of each trained turn, or None.

    Args:
        template: the pinned template.
        messages: the conversation, its structure checked.
        turns: indices of the trained assistant messages, ascending.
        stops: what ends a turn.
        exact: the per-turn definition; raises InputError where a turn has no body.
    """
    try:
        whole = template.render(messages)
        places = _places(template, messages, whole)
        if places is None:
            return None
        keys = dict(zip(turns, turn_keys(template, messages, turns), strict=True))
        asked = asked_turns(turns, keys, whole)
        known = {turn: exact(turn) for turn in asked}
    except InputError:  # the per-turn definition reports it, with every other finding
        return None
    headers: dict[Key, str] = {}
    for turn, (text, start, _) in known.items():
        after = places[turn].after
        if headers.setdefault(keys[turn], text[after:start]) != text[after:start] or start < after:
            return None
    spans = [_span(whole, places[turn], headers[keys[turn]], stops) for turn in turns]
    last_text, *last = known[turns[-1]]
    if turns[-1] == len(messages) - 1:  # its stop may be appended: the template prints none
        if not last_text.startswith(whole[: places[turns[-1]].fields_end]):
            return None
        whole, spans[-1] = last_text, (last[0], last[1])
    found = dict(zip(turns, spans, strict=True))
    for turn, (text, start, end) in known.items():
        if found[turn] != (start, end) or not whole.startswith(text[:end]):
            return None
    exact_spans = [span for span in spans if span is not None]
    return (whole, exact_spans) if len(exact_spans) == len(turns) else None


def asked_turns(turns: Sequence[int], keys: Mapping[int, Key], whole: str) -> list[int]:
    """The turns that the per-turn definition is asked about; the text chooses one of them."""
    first = {keys[turn]: turn for turn in reversed(turns)}
    last = {keys[turn]: turn for turn in turns}
    chance = turns[zlib.crc32(whole.encode("utf-8", "surrogatepass")) % len(turns)]
    return sorted({*first.values(), *last.values(), turns[-1], chance})


def _span(whole: str, place: Place, header: str, stops: StopSet) -> tuple[int, int] | None:
    start, stop = place.after + len(header), stops.first(place.tail)
    if stop is None or start > place.fields_end or not whole.startswith(header, place.after):
        return None
    end = place.fields_end + stop[1]
    return None if left_open(whole[place.after : end]) else (start, end)


def _places(template: Template, messages: Sequence[Message], whole: str) -> dict[int, Place] | None:
    """Where every answer stands in the whole; None where the template alters other contents."""
    others = [index for index, message in enumerate(messages) if message["role"] != ASSISTANT]
    stem = _absent(messages)
    marked = [
        message if message["role"] == ASSISTANT else {**message, "content": f"{stem}{index}z"}
        for index, message in enumerate(messages)
    ]
    real = _cut(template, marked, stem, others)
    afters = real and _ends(whole, real, [str(messages[i].get("content")) for i in others])
    if not afters or not real:
        return None
    ways = [False, True] if any(map(calls_bare, messages)) else [False]
    pairs = [
        [_cut(template, _varied(marked, tag, bare), stem, others) for tag in ("zqa", "zqb")]
        for bare in ways
    ]
    places = {}
    for number, other in enumerate(others, 1):
        if other + 1 == len(messages) or messages[other + 1]["role"] != ASSISTANT:
            continue
        ends = [[cut[number] if cut else None for cut in pair] for pair in pairs]
        tails = [tail for pair in ends if (tail := _tail(real[number], pair)) is not None]
        if not tails:
            return None
        after = afters[number - 1]
        places[other + 1] = Place(after, after + len(real[number]) - len(tails[0]), tails[0])
    return places


def _varied(marked: list[Message], tag: str, bare: bool) -> list[Message]:
    return [vary(m, tag, bare=bare) if m["role"] == ASSISTANT else m for m in marked]


def _tail(real: str, pair: Sequence[str | None]) -> str | None:
    """What two renders of a piece with other fields share at the end, where the real one has it."""
    first, second = pair
    if first is None or second is None or first == second:
        return None
    tail = common_suffix(first, second)
    return tail if real.endswith(tail) else None


def _absent(messages: Sequence[Message]) -> str:
    stem, text = "zqn", repr(messages)
    while stem in text:
        stem += "q"
    return stem


def _cut(
    template: Template, marked: list[Message], stem: str, others: list[int]
) -> list[str] | None:
    """The render's pieces between the marks; None unless every mark comes out once, in order."""
    pieces = re.split(f"{stem}([0-9]+)z", template.render(marked))
    return pieces[::2] if [int(piece) for piece in pieces[1::2]] == others else None


def _ends(whole: str, pieces: list[str], contents: list[str]) -> list[int] | None:
    """Where each content ends in the whole, which must be pieces and contents in turn."""
    if not whole.startswith(pieces[0]):
        return None
    position, ends = len(pieces[0]), []
    for content, following in zip(contents, pieces[1:], strict=True):
        ways = (content, content.strip(), content.lstrip(), content.rstrip())
        fit = [way for way in ways if way and whole.startswith(way + following, position)]
        if not fit:
            return None
        ends.append(position + len(fit[0]))
        position = ends[-1] + len(following)
    return ends if position == len(whole) else None
