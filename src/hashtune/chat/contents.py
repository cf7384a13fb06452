"""Contents against the text: control tokens inside them, and what a template strips or alters."""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache

from hashtune.chat.bodies import Layout
from hashtune.chat.messages import ASSISTANT, REASONING_FIELDS, functions_of, parse_arguments
from hashtune.chat.reasoning import with_opening
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import Finding
from hashtune.records import Message

OWN_PLACE = ("content", *REASONING_FIELDS)


def control_tokens(
    messages: Sequence[Message], template: Template, stops: StopSet
) -> list[Finding]:
    """Control tokens inside contents: they would forge a turn.

    Refused are the tokenizer's added tokens (blank ones aside, they forge nothing) and every stop;
    an answer may hold those that are not special, such as `<think>`.
    """
    found = []
    for index, message in enumerate(messages):
        for path, text in fields_of(message):
            if not template.added_token_pattern.search(text) and not stops.first(text):
                continue
            special = {text for text, is_special in template.added_tokens if is_special}
            refused = special | set(stops.texts)
            if message["role"] != ASSISTANT:
                refused |= {text for text, _ in template.added_tokens}
            for token in sorted(token for token in refused if token in text):
                where = f"messages[{index}].{path}"
                said = f"holds the control token {token!r}"
                fix = "remove or reword it in the data"
                found.append(Finding("control-token", said, field=where, fix=fix))
    return found


def check_contents(
    messages: Sequence[Message], layouts: Sequence[Layout]
) -> tuple[list[Finding], list[str]]:
    """Every field must be found in the text: trained ones in their body, others in the whole.

    Returns:
        Findings of fields that are missing; paths of fields that only blanks differ in, and of
        untrained answers that the template shortens as history.
    """
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
                found.append(
                    Finding("dropped", said, field=where, fix="pin a template that keeps it")
                )
            elif state != "exact":
                altered.append(where)
    return found, altered


def fields_of(message: Message) -> Iterator[tuple[str, str]]:
    """The texts that a message gives to the template, as (path, text), blank ones left out."""
    reasoning = next((field for field in REASONING_FIELDS if message.get(field)), None)
    for field in ("content", reasoning):
        if field and str(message.get(field) or "").strip():
            yield field, message[field]
    for index, function in enumerate(functions_of(message)):
        path = f"tool_calls[{index}]"
        yield f"{path}.name", function["name"]
        yield from _leaves(f"{path}.arguments", parse_arguments(function.get("arguments")))


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", key)
            yield from _leaves(f"{path}.{key}", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}[{index}]", item)
    elif isinstance(value, str) and value.strip():
        yield path, value


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
