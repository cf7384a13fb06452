"""S be kind, U hi, A yo with 40 published templates; written from the Jinja sources."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")

EXPECTED: dict[str, str] = {  # the trained text, or the rule after "!"
    "apriel-1_6-15b-thinker-fixed": "!no-stop",
    "axo_exaone4": "yo[|endofturn|]",
    "axo_jamba": " yo<|eom|>",
    "axo_llama4": "yo<|eot|>",
    "axo_metharme": "yo</s>",
    "axo_phi_4": "yo<|im_end|>",
    "bielik-11b-v3_0-instruct": "yo<|im_end|>",
    "cohereforai-c4ai-command-r7b-12-2024-tool_use": "!mismatch",
    "cz_llama-2-chat": " yo </s>",
    "cz_vicuna": " yo</s>",
    "deepseek-ai-deepseek-r1-distill-llama-8b": "!mismatch",
    "deepseek-ai-deepseek-v3_1": "yo<｜end▁of▁sentence｜>",
    "gigachat3-10b-a1_8b": "yo<|message_sep|>",
    "glm-4_6": "!no-stop",
    "glm-4_7-flash": "!no-stop",
    "google-gemma-2-2b-it": "!template-refuses",
    "google-gemma-4-31b-it": "!mismatch",
    "ibm-granite-granite-4_0": "yo<|end_of_text|>",
    "kimi-k2-instruct": "yo<|im_end|>",
    "lfm2_5-instruct": "yo<|im_end|>",
    "meetkai-functionary-medium-v3_1": "yo<|eot_id|>",
    "meta-llama-llama-3_1-8b-instruct": "yo<|eot_id|>",
    "microsoft-phi-3_5-mini-instruct": "yo<|end|>",
    "mistral-small-3_2-24b-instruct-2506": "yo</s>",
    # prints the system text before the last user message, and only while it is the last message
    "mistralai-mistral-nemo-instruct-2407": "!mismatch",
    "nousresearch-hermes-2-pro-llama-3-8b-tool_use": "!template-refuses",
    "nvidia-nemotron-nano-v2": "!open-reasoning",
    "openai-gpt-oss-120b": "<|channel|>final<|message|>yo<|return|>",
    "qwen-qwen2_5-7b-instruct": "yo<|im_end|>",
    "qwen-qwen3-0_6b": "<think>\n\n</think>\n\nyo<|im_end|>",
    "qwen-qwq-32b": "!mismatch",
    "qwen3-coder": "yo<|im_end|>",
    "qwen3_5-4b": "!mismatch",
    "thebloke--deepseek-coder-33b-instruct-awq": "yo\n<|EOT|>",
    "trl_gemma3": "yo<end_of_turn>",
    "trl_glm4moe_training": "\n<think></think>\nyo<|user|>",
    "trl_llama3_training": "yo<|eot_id|>",
    "trl_qwen3_instruct_2507": "yo<|im_end|>",
    "trl_qwen3_training": "<think>\n\n</think>\n\nyo<|im_end|>",
    "unsloth-mistral-devstral-small-2507": "yo</s>",
}
NO_THINKING = {"template_kwargs": {"enable_thinking": False}}
STORED = {"mismatch": "as_stored"}
CURED: list[tuple[str, dict[str, Any], str]] = [
    ("apriel-1_6-15b-thinker-fixed", {"stops": ["<|end|>"], **STORED}, "yo\n<|end|>"),
    (
        "cohereforai-c4ai-command-r7b-12-2024-tool_use",
        STORED,
        "yo<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
    ),
    ("deepseek-ai-deepseek-r1-distill-llama-8b", STORED, "yo<｜end▁of▁sentence｜>"),
    ("glm-4_6", {"stops": ["<|user|>"]}, "\n<think></think>\nyo<|user|>"),
    ("glm-4_7-flash", {"stops": ["<|user|>"], **NO_THINKING}, "yo<|user|>"),
    ("google-gemma-2-2b-it", {"system": "merge_into_user"}, "yo<end_of_turn>"),
    ("google-gemma-4-31b-it", STORED, "yo<turn|>"),
    ("mistralai-mistral-nemo-instruct-2407", {"mismatch": "as_prompted"}, "yo</s>"),
    (
        "nousresearch-hermes-2-pro-llama-3-8b-tool_use",
        {"template_kwargs": {"tools": []}},
        "yo<|im_end|>",
    ),
    ("qwen-qwen3-0_6b", NO_THINKING, "yo<|im_end|>"),
    ("qwen-qwq-32b", STORED, "yo<|im_end|>"),
    ("qwen3_5-4b", NO_THINKING, "yo<|im_end|>"),
]


def test_every_template_is_accounted_for() -> None:
    assert EXPECTED.keys() == {path.stem for path in SHARED.glob("*.jinja")}


@pytest.mark.parametrize("name", EXPECTED)
def test_with_no_setting(outcome: Callable[..., Any], name: str) -> None:
    expected = EXPECTED[name]
    wanted = expected[1:] if expected.startswith("!") else [expected]
    assert outcome(name, "system", {}) == wanted


@pytest.mark.parametrize(("name", "settings", "text"), CURED)
def test_with_settings(
    outcome: Callable[..., Any], name: str, settings: dict[str, Any], text: str
) -> None:
    assert outcome(name, "system", settings) == [text]
