"""Numbers of tool arguments reach the trained text as written; what a template alters is named."""

from collections.abc import Callable
from typing import Any

import pytest

from hashtune import spelling
from hashtune.chat.argument_values import argument_values
from hashtune.data.lines import ReadRow
from hashtune.data.schemas import as_row, parse_rows
from hashtune.strict_json import parse_strict

NUMBERS = '{"n": 1e5, "m": 1.0, "k": 1.10, "e": 0.1e-7, "z": -0, "l": [2.50, null]}'
PRINTED = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}"
    "{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}"
    "{{ k }}={{ v }};{% endfor %}{% endfor %}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.mark.parametrize("given", [NUMBERS, spelling.dumps(NUMBERS)], ids=["object", "text"])
def test_numbers_are_trained_as_the_file_writes_them(
    make_template: Callable[..., Any], sources: dict[str, str], tokenized: Callable[..., Any], given
) -> None:
    """From a line of the file through a row of Parquet to the decoded labels."""
    line = (
        '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", '
        f'"tool_calls": [{{"function": {{"name": "f", "arguments": {given}}}}}]}}]}}'
    )
    rows = [ReadRow(1, parse_strict(line))]
    parsed = parse_rows(rows, schema="messages", source="s", shown="s")
    messages = spelling.loads(str(as_row(parsed.conversations[0])["messages"]))
    template = make_template(sources["tools"])
    (example,) = tokenized(template, messages).examples
    trained = template.tokenizer.decode([label for label in example.labels if label != -100])
    assert trained == f"<call>f {NUMBERS}</call><|end|>"


def test_a_template_that_prints_values_itself_prints_them_as_written(
    make_template: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    call = {"function": {"name": "f", "arguments": parse_strict('{"a": 1.10, "b": -0}')}}
    messages = [*talk("hi"), {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert make_template(PRINTED).render(messages).endswith("a=1.10;b=-0;<|end|>")


def test_what_a_template_alters_is_named(
    make_template: Callable[..., Any], sources: dict[str, str]
) -> None:
    altered = {"null": "None", "true": "True", "false": "False"}
    lists = {"[null,1.10]": "[None, 1.10]", '{"zqk":true}': "{'zqk': True}"}
    assert argument_values(make_template(PRINTED)) == altered | lists
    assert argument_values(make_template(sources["tools"])) == {}
    assert argument_values(make_template(sources["plain"])) == {}  # prints no calls at all


def test_a_template_that_rounds_is_named(make_template: Callable[..., Any]) -> None:
    """Planted: numbers go through Python's own form."""
    rounding = PRINTED.replace("{{ v }}", "{{ v + 0 if v is number else v|tojson }}")
    found = argument_values(make_template(rounding))
    assert found["1.10"] == "1.1" and found["1e5"] == "100000.0" and found["-0"] == "0"


def test_qwen3_coder_prints_python(real: Callable[..., Any]) -> None:
    pytest.importorskip("transformers")
    try:
        template = real("qwen3-coder")
    except FileNotFoundError:
        pytest.skip("../shared is absent")
    assert argument_values(template) == {"null": "None", "true": "True", "false": "False"}
