"""When the prompt is no start of the stored answer: inference could never continue into it."""

import dataclasses
from collections.abc import Sequence

from hashtune.chat.messages import REASONING_FIELDS
from hashtune.chat.reasoning import continues, without_opening
from hashtune.chat.sentinels import common_prefix
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError
from hashtune.records import Message

SWITCHES = ("enable_thinking", "thinking", "clear_thinking", "keep_past_thinking")


def mismatch_finding(
    template: Template, messages: Sequence[Message], turn: int, prompt: str, full: str
) -> Finding:
    """The first difference, in text and tokens, and the template arguments that cure it."""
    at = common_prefix(prompt, full)
    index = _first_differing_token(template.encode(prompt), template.encode(full))
    cures = _cures(template, messages, turn)
    ways = " or ".join(f"tokenizer.template_kwargs {cure}" for cure in cures)
    ways = f"pin {ways}; or " if cures else ""
    return Finding(
        "mismatch",
        f"the prompt is no start of the stored answer: after {full[max(0, at - 24) : at]!r} "
        f"(token {index}) inference sees {prompt[at : at + 24]!r}, "
        f"the data {full[at : at + 24]!r}",
        field=f"messages[{turn}]",
        fix=f"{ways}set tokenizer.mismatch to as_prompted or as_stored",
    )


def as_prompted(prompt: str, message: Message, turn: int, *, closing: str, stops: StopSet) -> str:
    """The fields that the model writes after the prompt: the content, as the data has it.

    Raises:
        InputError: tool calls or separate reasoning, whose layout the prompt does not tell, or a
            template that wraps the content (its `closing` is more than a stop).
    """
    if closing.strip() not in [stop.strip() for stop in stops.texts]:
        text = f"as_prompted writes contents and a stop; the template closes with {closing!r}"
        fix = "use tokenizer.mismatch as_stored"
        raise InputError(Finding("as-prompted", text, field=f"messages[{turn}]", fix=fix))
    fields = ["tool_calls", *REASONING_FIELDS]
    extra = [field for field in fields if message.get(field)]
    if extra:
        text = f"as_prompted writes plain contents only; this message has {', '.join(extra)}"
        fix = "use tokenizer.mismatch as_stored, or put the reasoning into the content"
        raise InputError(
            Finding("as-prompted", text, field=f"messages[{turn}].{extra[0]}", fix=fix)
        )
    return without_opening(prompt, str(message["content"]))


def _first_differing_token(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(left, right, strict=False)
    same = min(len(left), len(right))
    return next((index for index, (one, two) in enumerate(pairs) if one != two), same)


def _cures(template: Template, messages: Sequence[Message], turn: int) -> list[dict[str, bool]]:
    """Single template switches under which the prompt is a start of the answer."""
    cures = []
    for switch in SWITCHES:
        for value in (False, True):
            kwargs = {**template.kwargs, switch: value}
            tried = dataclasses.replace(template, kwargs=kwargs)
            if switch in template.text and _continues(tried, messages, turn):
                cures.append({switch: value})
    return cures


def _continues(template: Template, messages: Sequence[Message], turn: int) -> bool:
    try:
        return continues(template.prompt(messages[:turn]), template.render(messages[: turn + 1]))
    except InputError:  # what the template refuses is no cure
        return False
