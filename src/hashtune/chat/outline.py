"""The template's own text around plain contents, found once for each order of roles.

The quick proof that a conversation of plain messages is whole: its text is that outline with every
content, as given, where it belongs. It counts and places, so a content that another one repeats is
still looked for in its own place. It says nothing where it fails: contents.py then asks further.
"""

import re
from collections.abc import Sequence

from hashtune.chat.bodies import Layout
from hashtune.chat.messages import is_plain
from hashtune.chat.reasoning import with_opening
from hashtune.chat.template import Outline, Template
from hashtune.errors import InputError
from hashtune.records import Message

KEPT = 256  # orders of roles
HOLE = re.compile("zqhole([0-9]+)qz", re.IGNORECASE)


def is_whole(template: Template, messages: Sequence[Message], layout: Layout) -> bool:
    """Whether the layout's text is the outline with every content in it, trained ones in a body."""
    if layout.rebuilt or not all(map(is_plain, messages)):
        return False
    outline = _outline(template, tuple([message["role"] for message in messages]))
    text, at = layout.text, 0
    places: dict[int, tuple[int, int]] = {}
    for piece, index in outline or ():
        start = at + len(piece)
        content = messages[index]["content"]
        if not (text.startswith(piece, at) and text.startswith(content, start)):
            return False
        at = start + len(content)
        places[index] = start, at
    return len(places) == len(messages) and all(
        _inside(text, places[body.turn], (body.start, body.end)) for body in layout.bodies
    )


def _inside(text: str, place: tuple[int, int], body: tuple[int, int]) -> bool:
    """Whether the place lies in the body; an opening tag printed by the prompt counts as body."""
    (start, end), (begin, past) = place, body
    if start < begin:
        begin = past - len(with_opening(text[:past], begin))
    return begin <= start and end <= past


def _outline(template: Template, roles: tuple[str, ...]) -> Outline | None:
    """The text before each content and the index of its message, as printed; None where the
    template takes no such conversation."""
    known = template.outlines
    if roles not in known:
        if len(known) == KEPT:
            known.clear()
        known[roles] = _find(template, roles)
    return known[roles]


def _find(template: Template, roles: tuple[str, ...]) -> Outline | None:
    talk = [{"role": role, "content": f"zqhole{index}qz"} for index, role in enumerate(roles)]
    try:
        pieces = HOLE.split(template.render(talk))
    except InputError:
        return None
    return [(piece, int(index)) for piece, index in zip(pieces[::2], pieces[1::2], strict=False)]
