"""Tool calls without arguments with published templates: the body ends behind the call's name.

Every expected text was written from the Jinja source, before the code ran.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.chat import tails
from hashtune.chat.sentinels import after_fields

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")

ROLES = {"stops": ["<|user|>", "<|observation|>"]}
NO_THINKING = {"template_kwargs": {"enable_thinking": False}}
NAMED = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'
CODER = "<tool_call>\n<function={}>\n{}</function>\n</tool_call>"
PARAMETER = "<parameter=city>\nOslo\n</parameter>\n"
GLM_46 = "\n<tool_call>{}\n{}</tool_call>"
PAIR_46 = "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
GLM_47 = "<tool_call>{}{}</tool_call>"
PAIR_47 = "<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
THINK = "\n<think></think>"
SHAPES: list[tuple[str, dict[str, Any], str, str, str, str, tuple[str, str], str]] = [
    # settings; before the first call; a call; its arguments or none; between calls; end; answer
    ("qwen3-coder", {}, "", CODER, PARAMETER, "\n", ("", "<|im_end|>"), "yo<|im_end|>"),
    ("qwen3_5-4b", NO_THINKING, "", CODER, PARAMETER, "\n", ("", "<|im_end|>"), "yo<|im_end|>"),
    ("glm-4_6", ROLES, THINK, GLM_46, PAIR_46, "", ("", "<|observation|>"), f"{THINK}\nyo<|user|>"),
    (
        "glm-4_7-flash",
        ROLES | NO_THINKING,
        "",
        GLM_47,
        PAIR_47,
        "",
        ("", "<|observation|>"),
        "yo<|user|>",
    ),
    (
        "trl_glm4moe_training",
        {},
        THINK,
        GLM_46,
        PAIR_46,
        "",
        ("", "<|observation|>"),
        f"{THINK}\nyo<|user|>",
    ),
    (
        "qwen-qwen2_5-7b-instruct",
        {},
        "",
        NAMED,
        '{"city": "Oslo"}',
        "\n",
        ("{}", "<|im_end|>"),
        "yo<|im_end|>",
    ),
]
OSLO = {"city": "Oslo"}
NO_ARGUMENTS = [{}, "{}", "null", "", None]


def talk(*calls: tuple[str, object]) -> list[dict[str, Any]]:
    made = [
        {"type": "function", "id": f"abcdefgh{k}", "function": {"name": name, "arguments": given}}
        for k, (name, given) in enumerate(calls)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "name": "ping", "content": "sun"}
        for call in made
    ]
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": made},
        *results,
        {"role": "assistant", "content": "yo"},
    ]


@pytest.fixture(params=SHAPES, ids=[shape[0] for shape in SHAPES])
def shape(request: pytest.FixtureRequest, outcome: Callable[..., Any]) -> Callable[..., Any]:
    """What becomes of calls, and what must, for each template."""
    name, settings, lead, call, given, between, (none, end), answer = request.param

    def run(*calls: tuple[str, object]) -> tuple[Any, list[str]]:
        printed = [call.format(who, given if what == OSLO else none) for who, what in calls]
        wanted = [lead + between.join(printed) + end, answer]
        return outcome(name, talk(*calls), settings), wanted

    return run


@pytest.mark.parametrize("arguments", NO_ARGUMENTS, ids=repr)
def test_a_call_without_arguments(shape: Callable[..., Any], arguments: object) -> None:
    got, wanted = shape(("ping", arguments))
    assert got == wanted


@pytest.mark.parametrize(
    "calls",
    [
        [("weather", OSLO), ("ping", {}), ("weather", OSLO)],
        [("weather", OSLO), ("ping", {})],
        [("ping", {}), ("pong", {})],
        [("ping", {}), ("weather", OSLO)],
    ],
    ids=["between", "last", "two", "first"],
)
def test_calls_with_and_without_arguments(
    shape: Callable[..., Any], calls: list[tuple[str, object]]
) -> None:
    got, wanted = shape(*calls)
    assert got == wanted


def test_planted_without_the_names_the_turn_has_no_end(
    outcome: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(*arguments: Any, following: Any, bare: bool = False) -> str:
        return after_fields(*arguments, following=following)

    monkeypatch.setattr(tails, "after_fields", plain)
    assert outcome("qwen3-coder", talk(("ping", {})), {}) == "turn-end"
    assert outcome("qwen3-coder", talk(("ping", OSLO)), {}) != "turn-end"
