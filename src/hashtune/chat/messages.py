"""Messages before they meet a template: structural rules, one normal form, which turns are trained.

A template accepts many broken conversations and prints something; so structure is checked here,
and the same normal form is rendered for training, evaluation and the registry entry.
"""

from collections.abc import Sequence
from typing import Any, Literal

from hashtune import parts
from hashtune.chat.calls import broken_call
from hashtune.errors import Finding, InputError
from hashtune.records import Message, contradicts_itself
from hashtune.strict_json import StrictJsonError, parse_strict

ASSISTANT = "assistant"
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
OWN_FIELDS = ("train", "weight")  # ours: they mask a turn and never reach a template
ROLES = ("system", "user", ASSISTANT)
Broken = tuple[str, str, str]


def is_plain(message: Message) -> bool:
    """Whether it is a role and a text and nothing else, as most are: then it is its own normal
    form, and there is nothing else to look for."""
    return len(message) == 2 and "role" in message and type(message.get("content")) is str


def check_messages(messages: Sequence[Message]) -> list[Broken]:
    """Every broken rule as (field path, rule, what is wrong); an empty list when all is well."""
    if not messages:
        return [("messages", "no-messages", "the conversation is empty")]
    found: list[Broken] = []
    for index, message in enumerate(messages):
        if not (is_plain(message) and message["content"].strip() and message["role"] in ROLES):
            found += _check_message(f"messages[{index}]", message)
    return found + _check_order(messages)


def trained_turns(
    messages: Sequence[Message], loss_on: Literal["assistant", "last_assistant"]
) -> list[int]:
    """Indices of the assistant messages with loss; `train: false` or `weight: 0` masks one.

    An assistant message that begins the conversation has none: nothing is before it that inference
    could be asked with. It is context of the later ones.
    """
    turns = [index for index, message in enumerate(messages) if message["role"] == ASSISTANT]
    turns = [index for index in turns if index]
    if loss_on == "last_assistant":
        turns = turns[-1:]
    return [index for index in turns if not _is_masked(messages[index])]


def untrained_answers(messages: Sequence[Message], turns: Sequence[int]) -> tuple[int, int]:
    """How many assistant messages have no loss since they begin the conversation, and how many of
    the others are not among the trained `turns`."""
    answers = sum(message["role"] == ASSISTANT for message in messages)
    first = int(messages[0]["role"] == ASSISTANT)
    return first, answers - first - len(turns)


def normalise(messages: Sequence[Message]) -> list[Message]:
    """The form that templates get: contents as text, no nulls, tool arguments as objects, none of
    our own fields.

    Raises:
        InputError: tool arguments that are no JSON object.
    """
    return [_normal(message, f"messages[{index}]") for index, message in enumerate(messages)]


def functions_of(message: Message) -> list[dict[str, Any]]:
    """The called functions of a message: dicts with "name" and "arguments" (in either nesting)."""
    return [call.get("function", call) for call in message.get("tool_calls") or []]


def parse_arguments(value: object) -> dict[str, Any]:
    """Tool arguments as an object; a JSON text is decoded once, null and "" mean none.

    Raises:
        ValueError: the text is no JSON or says what JSON cannot (NaN, a key twice, half a
            character), or the value is no object.
    """
    if isinstance(value, str):
        try:
            value = parse_strict(value) if value.strip() else None
        except StrictJsonError as error:
            raise ValueError(f"is no JSON ({error})") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"is a {type(value).__name__}, expected an object")
    return value


def refused_role(messages: Sequence[Message], index: int) -> str:
    """Why a template may refuse this message, in words."""
    role = messages[index]["role"]
    if index and messages[index - 1]["role"] == role:
        return f"role {role!r} follows {role!r}, which the template does not accept"
    if index == 0 and role in ("assistant", "tool"):
        return f"first role is {role!r}, which the template does not accept"
    return f"template does not accept role {role!r} here"


def _is_masked(message: Message) -> bool:
    return message.get("train") is False or message.get("weight") == 0


def _normal(message: Message, path: str) -> Message:
    kept = {key: value for key, value in message.items() if value is not None}
    for field in OWN_FIELDS:
        kept.pop(field, None)
    kept.setdefault("content", "")
    if isinstance(kept["content"], list):
        kept = parts.with_text(kept)
    if "tool_calls" in kept:
        kept["tool_calls"] = [
            _normal_call(call, f"{path}.tool_calls[{index}]")
            for index, call in enumerate(kept["tool_calls"])
        ]
    return kept


def _normal_call(call: dict[str, Any], path: str) -> dict[str, Any]:
    nested = "function" in call
    function, where = (call["function"], f"{path}.function") if nested else (call, path)
    try:
        normal = {**function, "arguments": parse_arguments(function.get("arguments"))}
    except ValueError as error:
        raise InputError(
            Finding("tool-arguments", str(error), field=f"{where}.arguments")
        ) from error
    return {**call, "function": normal} if nested else normal


def _check_message(path: str, message: Message) -> list[Broken]:
    role, calls = message.get("role"), message.get("tool_calls")
    found: list[Broken] = []
    if not isinstance(role, str) or not role.strip():
        found.append((f"{path}.role", "role", f"expected a name, got {role!r}"))
    found += _check_content(f"{path}.content", message)
    for field in REASONING_FIELDS:
        if not isinstance(message.get(field), str | None):
            found.append((f"{path}.{field}", "content-type", "expected text"))
    texts = {field: message[field] for field in REASONING_FIELDS if message.get(field)}
    if len(set(map(str, texts.values()))) > 1:
        said = f"another text than {next(iter(texts))!r} has: a template prints one of them"
        found.append((f"{path}.{list(texts)[-1]}", "two-reasonings", said))
    return found + _check_calls(path, calls) + _check_weight(path, message)


def _check_content(path: str, message: Message) -> list[Broken]:
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        if broken := list(parts.broken_parts(content)):
            return [(f"{path}[{index}]", "content-part", said) for index, said in broken]
        content = parts.with_text(message)["content"]
    if content is None and not calls:
        return [(path, "null-content", "null and no tool_calls")]
    if content is not None and not isinstance(content, str):
        return [(path, "content-type", f"expected text, got {type(content).__name__}")]
    if message.get("role") == ASSISTANT and not calls and not str(content).strip():
        return [(path, "blank-content", "blank and no tool_calls")]
    return []


def _check_calls(path: str, calls: object) -> list[Broken]:
    if calls is None:
        return []
    if not isinstance(calls, list):
        return [(f"{path}.tool_calls", "tool-calls", "expected a list")]
    found: list[Broken] = []
    for index, call in enumerate(calls):
        where = f"{path}.tool_calls[{index}]"
        if broken := list(broken_call(call)):
            found += [(f"{where}{part}", "tool-calls", said) for part, said in broken]
            continue
        nested = "function" in call
        function = call["function"] if nested else call
        where += ".function" if nested else ""
        try:
            parse_arguments(function.get("arguments"))
        except ValueError as error:
            found.append((f"{where}.arguments", "tool-arguments", str(error)))
    return found


def _check_weight(path: str, message: Message) -> list[Broken]:
    found: list[Broken] = []
    if not isinstance(message.get("train"), bool | None):
        found.append(
            (f"{path}.train", "train", f"expected true or false, got {message['train']!r}")
        )
    if message.get("weight") not in (None, 0, 1):
        found.append((f"{path}.weight", "weight", f"expected 0 or 1, got {message['weight']!r}"))
    elif contradicts_itself(message):
        found.append((f"{path}.weight", "train-weight", "says the opposite of train: keep one"))
    return found


def _check_order(messages: Sequence[Message]) -> list[Broken]:
    found: list[Broken] = []
    roles = [message.get("role") for message in messages]
    if roles[0] == ASSISTANT and ASSISTANT not in roles[1:]:
        found.append(("messages[0].role", "no-prompt", "first role is 'assistant'"))
    for index in range(1, len(roles)):
        if roles[index] == roles[index - 1] == ASSISTANT:
            text = "role 'assistant' follows 'assistant'"
            found.append((f"messages[{index}].role", "consecutive-assistant", text))
    answers = [index for index, role in enumerate(roles) if role == ASSISTANT]
    if not answers:
        found.append(("messages", "no-answer", "no message is from the assistant"))
    elif answers[-1] != len(roles) - 1:
        text = f"nothing to learn after messages[{answers[-1]}]"
        found.append((f"messages[{answers[-1] + 1}]", "trailing", text))
    return found
