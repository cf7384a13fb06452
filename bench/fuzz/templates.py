"""The templates of the fuzz, and what each must print of plain conversations.

"base" is the synthetic base's own, the others lie in Git as a user's would. All use its tokenizer,
whose control tokens are CONTROL.
"""

from dataclasses import dataclass

from fuzz.rows import Messages
from hashtune.store.synthetic import CHAT_TEMPLATE, SPECIAL, TURN_END

CONTROL = SPECIAL
END = TURN_END
LIMIT = 8192  # max_seq_len: above the bytes of any row but those that are meant to be too long
_STRICT = """\
{%- for m in messages -%}
{%- set turn = loop.index0 - (1 if messages[0].role == 'system' else 0) -%}
{%- if turn >= 0 and m.role != ('user' if turn % 2 == 0 else 'assistant') -%}
{{ raise_exception('roles must alternate user/assistant') }}
{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
_AGENT = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + (' ' + m.name if m.name else '') + '\\n' }}
{%- if m.reasoning_content and (keep or loop.last) -%}
{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}
{%- endif -%}
{{ m.content }}
{%- for call in m.tool_calls or [] -%}
{%- set f = call.function or call -%}
{{ '\\n<call>{"name": "' + f.name + '", "arguments": ' + f.arguments | tojson + '}</call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
_RAISES = {  # by question: what Jinja raises on it
    "zero": "{{ 1 // 0 }}",
    "range": "{% for i in range(200000) %}{% endfor %}",
    "format": "{{ '{}{}'.format(m.content) }}",
    "list": "{{ [m.content] | indent }}",
    "index": "{{ m.content.index('absent') }}",
}
_RAISING = "".join(
    f"{{%- if m.content == '{name}' -%}}{body}{{%- endif -%}}" for name, body in _RAISES.items()
)
RAISES = tuple(_RAISES)
TEMPLATES = {
    "base": CHAT_TEMPLATE,
    "strict": _STRICT,  # alternation, trims contents
    "agent": "{%- set keep = true -%}" + _AGENT,  # prints names, reasoning and calls
    "forgets": "{%- set keep = false -%}" + _AGENT,  # reasoning of the last message only
    # filters that take texts only, and errors on some contents
    "raises": "{%- for m in messages -%}"
    + _RAISING
    + "{{ '<|im_start|>' + m.role + '\n' + m.content | indent + '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}",
    "opens": CHAT_TEMPLATE.replace("assistant' + '\\n'", "assistant' + '\\n<think>\\n'"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tokenize must make of a row: exactly one of these.

    trained: the trained texts, one a turn; rule: the rule of its finding; long: it is over-long.
    """

    trained: tuple[str, ...] = ()
    rule: str = ""
    long: bool = False


def plain(messages: Messages) -> Outcome:
    """The outcome of messages without calls or reasoning under "base"."""
    if any(token in message["content"] for message in messages for token in CONTROL):
        return Outcome(rule="control-token")
    answers = [message for message in messages if message["role"] == "assistant"]
    return Outcome(tuple(m["content"] + END for m in answers if m.get("train") is not False))
