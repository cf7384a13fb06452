"""U hi, A calls weather(city: Oslo), T sun, A yo with 40 published templates.

Every expected text was written from the Jinja source, before the code ran.
Where a template never prints calls, `dropped` is the right refusal.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")

ARGUMENTS = '{"city": "Oslo"}'
NAMED = f'{{"name": "weather", "arguments": {ARGUMENTS}}}'
TAGGED = f"<tool_call>\n{NAMED}\n</tool_call>"
THINK = "<think>\n\n</think>\n\n"
CODER = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n"
    "</parameter>\n</function>\n</tool_call>"
)
GLM = (
    "\n<think></think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
    "</tool_call><|observation|>"
)
COMMAND = (
    '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": '
    f"{ARGUMENTS}}}\n]<|END_ACTION|><|END_OF_TURN_TOKEN|>"
)
EXPECTED: dict[str, list[str] | str] = {  # call and answer, or the first rule; others: dropped
    "apriel-1_6-15b-thinker-fixed": "no-stop",
    "axo_exaone4": [f"<tool_call>{NAMED}</tool_call>[|endofturn|]", "yo[|endofturn|]"],
    "axo_jamba": [f" <tool_calls>[\n    {NAMED}\n]</tool_calls><|eom|>", " yo<|eom|>"],
    "axo_llama4": [
        f'<|python_start|><|python_end|>{{"name": "weather", "parameters": {ARGUMENTS}}}<|eot|>',
        "yo<|eot|>",
    ],
    "bielik-11b-v3_0-instruct": [f"\n{TAGGED}<|im_end|>", "yo<|im_end|>"],
    "cohereforai-c4ai-command-r7b-12-2024-tool_use": "mismatch",
    "deepseek-ai-deepseek-v3_1": [
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{ARGUMENTS}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        "yo<｜end▁of▁sentence｜>",
    ],
    "gigachat3-10b-a1_8b": [
        f"<|message_sep|>\n\nfunction call<|role_sep|>\n{NAMED}<|message_sep|>",
        "yo<|message_sep|>",
    ],
    "glm-4_6": "no-stop",
    "glm-4_7-flash": "no-stop",
    "google-gemma-4-31b-it": "mismatch",
    "ibm-granite-granite-4_0": [f"{TAGGED}<|end_of_text|>", "yo<|end_of_text|>"],
    "kimi-k2-instruct": "template-refuses",  # appends to a list, which the sandbox forbids
    "meetkai-functionary-medium-v3_1": [
        f"<function=weather>{ARGUMENTS}</function><|eom_id|>",
        "yo<|eot_id|>",
    ],
    "meta-llama-llama-3_1-8b-instruct": [
        f'{{"name": "weather", "parameters": {ARGUMENTS}}}<|eot_id|>',
        "yo<|eot_id|>",
    ],
    "mistral-small-3_2-24b-instruct-2506": [
        f"[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{ARGUMENTS}</s>",
        "yo</s>",
    ],
    "mistralai-mistral-nemo-instruct-2407": [
        f'[TOOL_CALLS][{NAMED[:-1]}, "id": "abcdefghi"}}]</s>',
        "yo</s>",
    ],
    "nousresearch-hermes-2-pro-llama-3-8b-tool_use": "template-refuses",
    "nvidia-nemotron-nano-v2": "mismatch",
    "openai-gpt-oss-120b": [
        " to=functions.weather<|channel|>commentary json<|message|>" + ARGUMENTS + "<|call|>",
        "<|channel|>final<|message|>yo<|return|>",
    ],
    "qwen-qwen2_5-7b-instruct": [f"{TAGGED}<|im_end|>", "yo<|im_end|>"],
    "qwen-qwen3-0_6b": "unstable",
    "qwen-qwq-32b": "mismatch",
    "qwen3-coder": [f"{CODER}<|im_end|>", "yo<|im_end|>"],
    "qwen3_5-4b": "mismatch",
    "trl_glm4moe_training": [GLM, "\n<think></think>\nyo<|user|>"],
    "trl_qwen3_instruct_2507": [f"{TAGGED}<|im_end|>", "yo<|im_end|>"],
    "trl_qwen3_training": [f"{THINK}{TAGGED}<|im_end|>", f"{THINK}yo<|im_end|>"],
    "unsloth-mistral-devstral-small-2507": [f"[TOOL_CALLS]weather[ARGS]{ARGUMENTS}</s>", "yo</s>"],
}
STORED = {"mismatch": "as_stored"}
NO_THINKING = {"template_kwargs": {"enable_thinking": False}}
ROLES = {"stops": ["<|user|>", "<|observation|>"]}
WITH_SETTINGS: list[tuple[str, dict[str, Any], list[str] | str]] = [
    # as history a call gets an id, which the answer itself does not have
    ("apriel-1_6-15b-thinker-fixed", {"stops": ["<|end|>"], **STORED}, "unstable"),
    (
        "apriel-1_6-15b-thinker-fixed",
        {"stops": ["<|end|>"], **STORED, "unstable": "split"},
        [f"\n<tool_calls>[{NAMED}]</tool_calls>\n<|end|>", "yo\n<|end|>"],
    ),
    ("axo_metharme", {"unstable": "split"}, "dropped"),
    ("cohereforai-c4ai-command-r7b-12-2024-tool_use", STORED, "mismatch"),
    (
        "cohereforai-c4ai-command-r7b-12-2024-tool_use",
        {"template_kwargs": {"enable_thinking": True}},
        [
            "<|START_THINKING|><|END_THINKING|>" + COMMAND,
            "<|START_RESPONSE|>yo<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        ],
    ),
    ("deepseek-ai-deepseek-r1-distill-llama-8b", STORED, "dropped"),
    ("glm-4_6", ROLES, [GLM, "\n<think></think>\nyo<|user|>"]),
    (
        "glm-4_7-flash",
        ROLES | NO_THINKING,
        [
            "<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
            "<|observation|>",
            "yo<|user|>",
        ],
    ),
    (
        "google-gemma-4-31b-it",
        STORED,
        ['<|tool_call>call:weather{city:<|"|>Oslo<|"|>}<tool_call|><turn|>', "yo<turn|>"],
    ),
    # the prompt has no newline before the end of the tool's turn, the history has one
    (
        "nousresearch-hermes-2-pro-llama-3-8b-tool_use",
        {"template_kwargs": {"tools": []}},
        "mismatch",
    ),
    (
        "nousresearch-hermes-2-pro-llama-3-8b-tool_use",
        {"template_kwargs": {"tools": []}, **STORED},
        [f"{TAGGED}<|im_end|>", "yo<|im_end|>"],
    ),
    (
        "qwen-qwen3-0_6b",
        {"unstable": "split"},
        [f"{THINK}{TAGGED}<|im_end|>", f"{THINK}yo<|im_end|>"],
    ),
    ("qwen-qwq-32b", STORED, [f"{TAGGED}<|im_end|>", "yo<|im_end|>"]),
    ("qwen3_5-4b", NO_THINKING, [f"{CODER}<|im_end|>", "yo<|im_end|>"]),
]


@pytest.mark.parametrize("name", sorted(path.stem for path in SHARED.glob("*.jinja")))
def test_with_no_setting(outcome: Callable[..., Any], name: str) -> None:
    assert outcome(name, "tool", {}) == EXPECTED.get(name, "dropped")


@pytest.mark.parametrize(("name", "settings", "expected"), WITH_SETTINGS)
def test_with_settings(
    outcome: Callable[..., Any], name: str, settings: dict[str, Any], expected: list[str] | str
) -> None:
    assert outcome(name, "tool", settings) == expected


def test_the_table_names_templates() -> None:
    names = {path.stem for path in SHARED.glob("*.jinja")}
    assert EXPECTED.keys() <= names and len(names) == 40
