"""From conversations to examples: ids of the whole render, labels inside the bodies only."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from hashtune.chat.accepted import system_faults
from hashtune.chat.bodies import Layout, Mismatch, Unstable, layouts
from hashtune.chat.contents import check_contents
from hashtune.chat.control import control_tokens, escape, escape_faults
from hashtune.chat.labels import label_text
from hashtune.chat.messages import OWN_FIELDS, check_messages, trained_turns, untrained_answers
from hashtune.chat.owed import turn_faults
from hashtune.chat.own_text import computed_texts
from hashtune.chat.proof import prove
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError
from hashtune.parts import with_text
from hashtune.records import Conversation, Example, Message


@dataclasses.dataclass(frozen=True, slots=True)
class Tokenized:
    """The examples of a conversation, and what its template did to it.

    turns: trained turns that the policies asked for; altered: paths of fields whose blanks the
    template changed, or that it shortened as untrained history; escaped: how many messages hold
    control tokens that became plain text; text: it is a plain text, which split cuts anywhere;
    unprompted: assistant messages that begin the conversation, masked: those that `train`, `weight`
    or data.loss_on take out.
    """

    examples: list[Example]
    turns: int
    altered: list[str]
    escaped: int = 0
    text: bool = False
    unprompted: int = 0
    masked: int = 0


def tokenize_conversation(
    conversation: Conversation,
    template: Template,
    stops: StopSet,
    *,
    loss_on: Literal["assistant", "last_assistant"],
    unstable: Unstable,
    mismatch: Mismatch,
) -> Tokenized:
    """Examples whose masks were derived twice and agree.

    Raises:
        InputError: every finding of the conversation, with its source and line.
    """
    try:
        messages, escaped = _sound_messages(conversation, template)
        turns = _checked_turns(messages, template, stops, loss_on)
        plan = layouts(template, messages, stops, turns=turns, unstable=unstable, mismatch=mismatch)
        found, altered = check_contents(template, messages, plan)
        found += computed_texts(template, messages, plan, stops)
        found += turn_faults(
            conversation.messages,
            [[body.turn for body in layout.bodies] for layout in plan],
            loss_on=loss_on,
            unstable=unstable,
        )
        examples = []
        for layout in plan if not found else ():
            examples.append(example := _example(conversation, template, layout, len(plan)))
            found += prove(
                template,
                messages[: layout.upto],
                example,
                turns=[body.turn for body in layout.bodies],
                stops=stops,
                rebuilt=layout.rebuilt,
            )
            if escaped:
                faults = escape_faults(layout.text, example.input_ids, template.tokenizer)
                found += [Finding("proof", text, field="messages") for text in faults]
        if found:
            raise InputError(found)
    except InputError as error:
        raise InputError([_placed(item, conversation) for item in error.findings]) from error
    unprompted, masked = untrained_answers(messages, turns)
    return Tokenized(examples, len(turns), altered, escaped, unprompted=unprompted, masked=masked)


def _sound_messages(conversation: Conversation, template: Template) -> tuple[list[Message], int]:
    """The messages with contents as texts, and how many of them are escaped."""
    messages = conversation.messages
    found = [Finding(rule, text, field=field) for field, rule, text in check_messages(messages)]
    if template.merge_system and not found:
        found = system_faults(messages)
    if found:
        raise InputError(found)
    messages = [with_text(message) for message in messages]
    if not template.escape:
        return messages, 0
    masks = [{key: m[key] for key in OWN_FIELDS if key in m} for m in messages]
    changed, count = escape(messages, template.added_tokens, template.added_token_pattern)
    return [{**message, **mask} for message, mask in zip(changed, masks, strict=True)], count


def _checked_turns(
    messages: Sequence[Message],
    template: Template,
    stops: StopSet,
    loss_on: Literal["assistant", "last_assistant"],
) -> list[int]:
    found = control_tokens(
        messages, template.added_tokens, template.added_token_pattern, stops.texts
    )
    turns = trained_turns(messages, loss_on)
    if not turns:
        text = "0 trained tokens: every assistant message is masked by train or weight"
        found.append(Finding("nothing-to-learn", text, field="messages"))
    if found:
        raise InputError(found)
    return turns


def _example(conversation: Conversation, template: Template, layout: Layout, parts: int) -> Example:
    spans = [(body.start, body.end) for body in layout.bodies]
    ids, labels, straddlers = label_text(template, layout.text, spans)
    name = conversation.id if parts == 1 else f"{conversation.id}.{layout.bodies[0].turn}"
    return Example(name, conversation.id, conversation.source, ids, labels, straddlers)


def _placed(finding: Finding, conversation: Conversation) -> Finding:
    return dataclasses.replace(finding, file=conversation.source, line=conversation.line)
