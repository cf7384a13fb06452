"""U hi, A yo with reasoning_content addle, with 40 published templates; from the Jinja sources.

Most templates never print the field: then `dropped` is the right refusal.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")

PRINTED = {  # with no setting
    "bielik-11b-v3_0-instruct": "<think>\naddle\n</think>\nyo<|im_end|>",
    "openai-gpt-oss-120b": "<|channel|>analysis<|message|>addle<|end|><|start|>assistant"
    "<|channel|>final<|message|>yo<|return|>",
    "qwen-qwen3-0_6b": "<think>\naddle\n</think>\n\nyo<|im_end|>",
    "qwen3_5-4b": "addle\n</think>\n\nyo<|im_end|>",
    "trl_glm4moe_training": "\n<think>addle</think>\nyo<|user|>",
    "trl_qwen3_training": "<think>\naddle\n</think>\n\nyo<|im_end|>",
}
REFUSED = {  # otherwise than by dropped
    "apriel-1_6-15b-thinker-fixed": "no-stop",
    "cohereforai-c4ai-command-r7b-12-2024-tool_use": "mismatch",
    "deepseek-ai-deepseek-r1-distill-llama-8b": "mismatch",
    "glm-4_6": "no-stop",
    "glm-4_7-flash": "no-stop",
    "google-gemma-4-31b-it": "mismatch",
    "nousresearch-hermes-2-pro-llama-3-8b-tool_use": "template-refuses",
    "nvidia-nemotron-nano-v2": "open-reasoning",
    "qwen-qwq-32b": "mismatch",
}
STORED = {"mismatch": "as_stored"}
THINKING = {"enable_thinking": True, "skip_think": False}
WITH_SETTINGS: list[tuple[str, dict[str, Any], list[str] | str]] = [
    (
        "apriel-1_6-15b-thinker-fixed",
        {"stops": ["<|end|>"], **STORED},
        ["addle\n[BEGIN FINAL RESPONSE]\nyo\n<|end|>"],
    ),
    ("axo_exaone4", {"template_kwargs": THINKING}, ["addle\n</think>\n\nyo[|endofturn|]"]),
    ("cohereforai-c4ai-command-r7b-12-2024-tool_use", STORED, "dropped"),
    ("deepseek-ai-deepseek-r1-distill-llama-8b", STORED, "dropped"),
    ("glm-4_6", {"stops": ["<|user|>"]}, ["\n<think>addle</think>\nyo<|user|>"]),
    ("glm-4_7-flash", {"stops": ["<|user|>"]}, ["addle</think>yo<|user|>"]),
    ("google-gemma-4-31b-it", STORED, "dropped"),
    (
        "nousresearch-hermes-2-pro-llama-3-8b-tool_use",
        {"template_kwargs": {"tools": []}},
        "dropped",
    ),
    ("nvidia-nemotron-nano-v2", STORED, "open-reasoning"),
    ("qwen-qwq-32b", STORED, "dropped"),
]


@pytest.mark.parametrize("name", sorted(path.stem for path in SHARED.glob("*.jinja")))
def test_with_no_setting(outcome: Callable[..., Any], name: str) -> None:
    wanted = [PRINTED[name]] if name in PRINTED else REFUSED.get(name, "dropped")
    assert outcome(name, "reasoning", {}) == wanted


@pytest.mark.parametrize(("name", "settings", "expected"), WITH_SETTINGS)
def test_with_settings(
    outcome: Callable[..., Any], name: str, settings: dict[str, Any], expected: list[str] | str
) -> None:
    assert outcome(name, "reasoning", settings) == expected


def test_the_tables_name_templates() -> None:
    names = {path.stem for path in SHARED.glob("*.jinja")}
    assert PRINTED.keys() | REFUSED.keys() <= names and len(names) == 40
