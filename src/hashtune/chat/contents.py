"""Contents against the text: what a template strips, alters or drops.

Every field is looked for in the text; then it is asked whether each one has a place of its own
there, since a field that was dropped may be equal to another, or a part of it.
"""

import json
from collections.abc import Sequence
from functools import lru_cache

from hashtune.chat.bodies import Layout
from hashtune.chat.fields import fields_of
from hashtune.chat.messages import ASSISTANT, REASONING_FIELDS
from hashtune.chat.outline import is_whole
from hashtune.chat.printed import lost_fields
from hashtune.chat.reasoning import with_opening
from hashtune.chat.template import Template
from hashtune.errors import Finding
from hashtune.records import Message

FIX = "pin a template that keeps it"
OWN_PLACE = ("content", *REASONING_FIELDS)


def check_contents(
    template: Template, messages: Sequence[Message], layouts: Sequence[Layout]
) -> tuple[list[Finding], list[str]]:
    """Every field must be found in the text: trained ones in their body, others in the whole.

    Returns:
        Findings of fields that are missing; paths of fields that only blanks differ in, and of
        untrained answers that the template shortens as history.
    """
    if all(is_whole(template, messages[: layout.upto], layout) for layout in layouts):
        return [], []
    found, altered = _look_for(messages, layouts)
    told = {finding.field for finding in found}
    for layout in layouts:
        trained = {body.turn for body in layout.bodies}
        for (index, path), field in lost_fields(template, messages[: layout.upto], layout).items():
            where = f"messages[{index}].{path}"
            if where not in told:
                told.add(where)
                span = "trained span" if index in trained else "text"
                said = f"the template drops {field.spellings[0][:40]!r}: the {span} holds it, if at"
                said += " all, only in the place of another field"
                found.append(Finding("dropped", said, field=where, fix=FIX))
    return found, altered


def _look_for(
    messages: Sequence[Message], layouts: Sequence[Layout]
) -> tuple[list[Finding], list[str]]:
    """What check_contents returns, by a look for each field alone."""
    found: list[Finding] = []
    altered: list[str] = []
    trained = {
        body.turn: with_opening(layout.text[: body.end], body.start)
        for layout in layouts
        for body in layout.bodies
    }
    whole = layouts[-1].text
    for index, message in enumerate(messages[: layouts[-1].upto]):
        text = trained.get(index, whole)
        fields = list(fields_of(message))
        if index in trained:  # reasoning that the content also holds must be there a second time
            fields.sort(key=lambda field: -len(field[1]))
        for path, value in fields:
            state = _presence(value, text)
            if index in trained and path in OWN_PLACE:
                text = text.replace(value, "\n", 1)
            where = f"messages[{index}].{path}"
            if state == "missing" and (index in trained or message["role"] != ASSISTANT):
                span = "trained span" if index in trained else "text"
                said = f"the template drops {value.strip()[:40]!r}: it is not in the {span}"
                found.append(Finding("dropped", said, field=where, fix=FIX))
            elif state != "exact":
                altered.append(where)
    return found, altered


def _presence(value: str, text: str) -> str:
    """ "exact", "altered" (only blanks differ) or "missing"; JSON spelling counts as exact."""
    if value in text:
        return "exact"
    spellings = (value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1])
    if any(spelling in text for spelling in spellings):
        return "exact"
    squeezed = _squeezed(text)
    return "altered" if any("".join(s.split()) in squeezed for s in spellings) else "missing"


@lru_cache(maxsize=2)
def _squeezed(text: str) -> str:
    """Without blanks; kept, since many messages are looked for in one text."""
    return "".join(text.split())
