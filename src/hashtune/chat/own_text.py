"""The template's own text inside an answer: it must stand in the template's source.

What a template prints around an answer and the generation prompt does not (`<think></think>`, a
blank, an end of turn) is part of the body: inference must write it. A text that a template computes
(`content|float` prints 0.0 before "yo") is nobody's: no row holds it and nobody wrote it down.
Calls come with the punctuation of JSON or XML; they are left to the look for their fields.
"""

import json
from collections.abc import Collection, Iterator, Sequence

from hashtune.chat.bodies import Layout
from hashtune.chat.messages import REASONING_FIELDS
from hashtune.chat.reasoning import with_opening
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import Finding
from hashtune.records import Message

HOLE = "\0"  # stands for a field of the row
QUOTED = f'"{HOLE}"'  # as `content|tojson` prints it
KEPT = 256
TRIED = 8  # places of a field that are tried: it may be equal to a part of the template's text


def computed_texts(
    template: Template, messages: Sequence[Message], layouts: Sequence[Layout], stops: StopSet
) -> list[Finding]:
    """A finding for each trained answer that holds text neither of the row nor of the source."""
    found = []
    for layout in layouts:
        for body in layout.bodies:
            message = messages[body.turn]
            text = layout.text[body.start : body.end]
            if message.get("tool_calls") or _seen(template, message, text):
                continue
            text = with_opening(layout.text[: body.end], body.start)
            if (own := _strange(template, message, text, stops)) is not None:
                shown = own.replace(HOLE, " ... ").strip()
                said = f"the template {template.name} computes text of the answer: {shown[:60]!r} "
                said += "around it stands neither in the row nor in the template's source"
                fix = "pin a template that prints the answer as it is"
                where = f"messages[{body.turn}]"
                found.append(Finding("computed-text", said, field=where, fix=fix))
    return found


def _seen(template: Template, message: Message, body: str) -> bool:
    """Whether a plain answer stands in a body like one that was found right: most do."""
    content = message.get("content")
    if len(message) != 2 or not content:
        return False
    before, _, behind = body.partition(content)
    return before + HOLE + behind in template.own_texts


def _strange(template: Template, message: Message, text: str, stops: StopSet) -> str | None:
    """What surrounds the fields of an answer, where it is not of the source; None where it is, or
    where a field is not there (that is another rule's affair)."""
    content = str(message.get("content") or "")
    at = text.find(content) if content else -1
    if at >= 0 and len(message) == 2:
        own = text[:at] + HOLE + text[at + len(content) :]
        if _known(template, "".join(own.split()), message, stops):
            template.own_texts.add(own)
            return None
    reasoning = next((str(message[name]) for name in REASONING_FIELDS if message.get(name)), "")
    squeezed = "".join(text.split())
    ways: list[str] = []
    in_json = (json.dumps(content, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True))
    for spelled in dict.fromkeys((content, *in_json)):
        fields = ["".join(field.split()) for field in (spelled, reasoning)]
        ways += _without(squeezed, sorted(filter(None, fields), key=len, reverse=True))
    if not ways or any(_known(template, way, message, stops) for way in ways):
        return None
    return ways[0]


def _without(text: str, fields: Sequence[str]) -> Iterator[str]:
    """The text with a hole for each field, for each of the first places where these stand."""
    if not fields:
        yield text
        return
    at = text.find(fields[0])
    for _ in range(TRIED):
        if at < 0:
            return
        yield from _without(text[:at] + HOLE + text[at + len(fields[0]) :], fields[1:])
        at = text.find(fields[0], at + 1)


def _known(template: Template, own: str, message: Message, stops: StopSet) -> bool:
    """Whether the text, without blanks, is made of constants of the template, its arguments, stops
    and small fields of the message, in whatever case. What is known is kept."""
    kept = template.own_texts
    if own not in kept:
        small = [message[key] for key in message if key not in ("content", *REASONING_FIELDS)]
        pieces = [HOLE, QUOTED, *stops.texts, *template.constants, *map(str, small)]
        plain = {"".join(piece.split()).lower() for piece in pieces}
        if not _made_of(own.lower(), plain - {""}):
            return False
        if len(kept) >= KEPT:
            kept.clear()
        kept.add(own)
    return True


def _made_of(text: str, pieces: Collection[str]) -> bool:
    """Whether the text is a row of pieces. A body may begin and end inside one: the prompt holds
    its beginning, or the stop ends before its end."""
    reached = {0, *(len(end) for piece in pieces for end in _ends(piece) if text.startswith(end))}
    for place in range(len(text)):
        if place in reached:
            reached |= {place + len(p) for p in pieces if text.startswith(p, place)}
    return any(
        place in reached and any(piece.startswith(text[place:]) for piece in pieces)
        for place in range(len(text) + 1)
    )


def _ends(piece: str) -> Iterator[str]:
    return (piece[cut:] for cut in range(1, len(piece)))
