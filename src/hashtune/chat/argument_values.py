"""How a template prints the values of tool arguments, where it does not print them as JSON."""

from typing import Any

from hashtune import spelling
from hashtune.chat.sentinels import common_prefix, common_suffix
from hashtune.chat.template import Template
from hashtune.errors import InputError
from hashtune.records import Message

NUMBERS = ("1.10", "1e5", "-0")
VALUES = ("null", "true", "false", *NUMBERS, "[null,1.10]", '{"zqk":true}')


def argument_values(template: Template) -> dict[str, str]:
    """JSON text of a value -> what the template prints for it, of VALUES that it alters.

    A template that knows no tool calls alters none. Blanks between items do not count.
    """
    numbers = [_rendered(template, 7), _rendered(template, 8)]
    if None in numbers or numbers[0] == numbers[1]:
        return {}
    one, other = (str(text) for text in numbers)
    start, end = common_prefix(one, other), len(common_suffix(one, other))
    found = {}
    for text in VALUES:
        whole = _rendered(template, spelling.loads(text))
        printed = "(refused)" if whole is None else whole[start : len(whole) - end]
        if "".join(printed.split()) != text:
            found[text] = printed
    return found


def _rendered(template: Template, value: Any) -> str | None:
    call = {"name": "zqf", "arguments": {"zqv": value}}
    messages: list[Message] = [
        {"role": "user", "content": "zqu"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "id": "abcdefghi", "function": call}],
        },
    ]
    try:
        return template.render(messages)
    except InputError:
        return None
