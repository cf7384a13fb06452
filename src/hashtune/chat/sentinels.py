"""Template text around an answer, found by rendering it twice with its fields replaced."""

from collections.abc import Sequence

from hashtune.chat.messages import (
    ASSISTANT,
    REASONING_FIELDS,
    functions_of,
    normalise,
    parse_arguments,
)
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError
from hashtune.records import Message

NEXT = "zqnextqz"


def after_fields(
    template: Template,
    before: Sequence[Message],
    message: Message,
    *,
    following: Message | None,
    bare: bool = False,
) -> str:
    """The text that the template itself prints after the last field of an assistant message.

    Two renders differ in every field of the message, so what they share at the end is the
    template's. With a `following` message it reaches up to that message's content. `bare`: calls
    without arguments stay without (see vary).

    Raises:
        InputError: the two renders are equal: the template prints no field of the message.
    """
    rest = [{**following, "content": NEXT}] if following else []
    first = template.render([*before, vary(message, "zqa", bare=bare), *rest])
    try:
        second = template.render([*before, vary(message, "zqb", bare=bare), *rest])
    except InputError:  # it takes texts as arguments only, and so prints the quotes itself
        second = template.render([*before, vary(message, "zqb", bare=bare, texts=True), *rest])
    if first == second:
        where = f"messages[{len(before)}]"
        fix = "pin a template that prints it"
        raise InputError(
            Finding("dropped", "the template prints nothing of it", field=where, fix=fix)
        )
    shared = common_suffix(first, second)
    cut = shared.find(NEXT) if following else len(shared)
    return shared[: max(cut, 0)]


def follower(messages: Sequence[Message], index: int) -> Message:
    """The message after `index`, or the one that this kind of turn asks for."""
    if index + 1 < len(messages):
        return {"role": messages[index + 1]["role"]}
    called = bool(messages[index].get("tool_calls"))
    return {"role": "tool"} if called else {"role": "user"}


def calls_bare(message: Message) -> bool:
    """Whether a call of the message has no arguments: then a template may print its name last."""
    calls = functions_of(message)
    return any(not parse_arguments(function.get("arguments")) for function in calls)


def common_prefix(left: str, right: str) -> int:
    """Number of equal characters at the start."""
    pairs = enumerate(zip(left, right, strict=False))
    differing = (index for index, (one, two) in pairs if one != two)
    return next(differing, min(len(left), len(right)))


def common_suffix(left: str, right: str) -> str:
    """The equal characters at the end."""
    length = common_prefix(left[::-1], right[::-1])
    return left[len(left) - length :]


def vary(message: Message, tag: str, *, bare: bool = False, texts: bool = False) -> Message:
    """The assistant message with every field replaced by the tag, "zqa" or "zqb".

    Arguments differ in type, so that no quote is shared, but not with `texts`. Names stay, since
    templates look them up and repeat them in other messages. But with `bare` a call without
    arguments stays without, as its template prints nothing in their place, and its name is what
    differs.
    """
    varied = normalise([message])[0]
    for field in ("content", *REASONING_FIELDS):
        if str(varied.get(field, "")).strip():
            varied[field] = tag
    arguments = {tag: tag} if texts or tag == "zqa" else {tag: 7}
    calls = []
    for call in varied.get("tool_calls", []):
        nested = "function" in call
        function = call["function"] if nested else call
        if bare and not function["arguments"]:
            function = {**function, "name": tag}
        else:
            function = {**function, "arguments": arguments}
        calls.append({**call, "function": function} if nested else function)
    if calls:
        varied["tool_calls"] = calls
    return {**varied, "role": ASSISTANT}
