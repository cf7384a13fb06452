"""Plain two-turn chat, U hi, A yo, U and?, A ok then, with 40 published templates.

Every expected text was written from the Jinja source, before the code ran.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")

THINK = "<think>\n\n</think>\n\n"
FINAL = "<|channel|>final<|message|>"
EXPECTED: dict[str, str | tuple[str, str]] = {  # (before, after) each answer, or the rule
    "apriel-1_6-15b-thinker-fixed": "no-stop",
    "axo_exaone4": ("", "[|endofturn|]"),
    "axo_jamba": (" ", "<|eom|>"),
    "axo_llama4": ("", "<|eot|>"),
    "axo_metharme": "unstable",
    "axo_phi_4": ("", "<|im_end|>"),
    "bielik-11b-v3_0-instruct": ("", "<|im_end|>"),
    "cohereforai-c4ai-command-r7b-12-2024-tool_use": "mismatch",
    "cz_llama-2-chat": (" ", " </s>"),
    "cz_vicuna": (" ", "</s>"),
    "deepseek-ai-deepseek-r1-distill-llama-8b": "mismatch",
    "deepseek-ai-deepseek-v3_1": ("", "<｜end▁of▁sentence｜>"),
    "gigachat3-10b-a1_8b": ("", "<|message_sep|>"),
    "glm-4_6": "no-stop",
    "glm-4_7-flash": "no-stop",
    "google-gemma-2-2b-it": ("", "<end_of_turn>"),
    "google-gemma-4-31b-it": "mismatch",
    "ibm-granite-granite-4_0": ("", "<|end_of_text|>"),
    "kimi-k2-instruct": ("", "<|im_end|>"),
    "lfm2_5-instruct": ("", "<|im_end|>"),
    "meetkai-functionary-medium-v3_1": ("", "<|eot_id|>"),
    "meta-llama-llama-3_1-8b-instruct": ("", "<|eot_id|>"),
    "microsoft-phi-3_5-mini-instruct": ("", "<|end|>"),
    "mistral-small-3_2-24b-instruct-2506": ("", "</s>"),
    "mistralai-mistral-nemo-instruct-2407": ("", "</s>"),
    "nousresearch-hermes-2-pro-llama-3-8b-tool_use": "template-refuses",  # iterates tools
    "nvidia-nemotron-nano-v2": "open-reasoning",
    "openai-gpt-oss-120b": "unstable",
    "qwen-qwen2_5-7b-instruct": ("", "<|im_end|>"),
    "qwen-qwen3-0_6b": "unstable",
    "qwen-qwq-32b": "mismatch",
    "qwen3-coder": ("", "<|im_end|>"),
    "qwen3_5-4b": "mismatch",
    "thebloke--deepseek-coder-33b-instruct-awq": ("", "\n<|EOT|>"),
    "trl_gemma3": ("", "<end_of_turn>"),
    "trl_glm4moe_training": ("\n<think></think>\n", "<|user|>"),
    "trl_llama3_training": ("", "<|eot_id|>"),
    "trl_qwen3_instruct_2507": ("", "<|im_end|>"),
    "trl_qwen3_training": (THINK, "<|im_end|>"),
    "unsloth-mistral-devstral-small-2507": ("", "</s>"),
}
NO_THINKING = {"template_kwargs": {"enable_thinking": False}}
CURED: list[tuple[str, dict[str, Any], tuple[str, str]]] = [  # at most two lines of conf
    (
        "apriel-1_6-15b-thinker-fixed",
        {"stops": ["<|end|>"], "mismatch": "as_stored"},
        ("", "\n<|end|>"),
    ),
    ("axo_metharme", {"unstable": "split"}, ("", "</s>")),
    (
        "cohereforai-c4ai-command-r7b-12-2024-tool_use",
        {"mismatch": "as_stored"},
        ("", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"),
    ),
    (
        "cohereforai-c4ai-command-r7b-12-2024-tool_use",
        {"template_kwargs": {"enable_thinking": True}},
        ("<|START_RESPONSE|>", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"),
    ),
    (
        "deepseek-ai-deepseek-r1-distill-llama-8b",
        {"mismatch": "as_stored"},
        ("", "<｜end▁of▁sentence｜>"),
    ),
    ("glm-4_6", {"stops": ["<|user|>"]}, ("\n<think></think>\n", "<|user|>")),
    ("glm-4_7-flash", {"stops": ["<|user|>"], **NO_THINKING}, ("", "<|user|>")),
    ("glm-4_7-flash", {"stops": ["<|user|>"], "mismatch": "as_stored"}, ("", "<|user|>")),
    ("google-gemma-4-31b-it", {"mismatch": "as_stored"}, ("", "<turn|>")),
    (
        "nousresearch-hermes-2-pro-llama-3-8b-tool_use",
        {"template_kwargs": {"tools": []}},
        ("", "<|im_end|>"),
    ),
    ("openai-gpt-oss-120b", {"unstable": "split"}, (FINAL, "<|return|>")),
    ("qwen-qwen3-0_6b", {"unstable": "split"}, (THINK, "<|im_end|>")),
    ("qwen-qwen3-0_6b", NO_THINKING | {"unstable": "split"}, ("", "<|im_end|>")),
    ("qwen-qwq-32b", {"mismatch": "as_stored"}, ("", "<|im_end|>")),
    ("qwen3_5-4b", NO_THINKING | {"unstable": "split"}, ("", "<|im_end|>")),
]


def texts(around: tuple[str, str]) -> list[str]:
    return [f"{around[0]}{answer}{around[1]}" for answer in ("yo", "ok then")]


def test_every_template_is_accounted_for() -> None:
    assert EXPECTED.keys() == {path.stem for path in SHARED.glob("*.jinja")}
    assert sum(not isinstance(expected, str) for expected in EXPECTED.values()) == 27
    refused = {name for name, expected in EXPECTED.items() if isinstance(expected, str)}
    assert refused - {name for name, _, _ in CURED} == {"nvidia-nemotron-nano-v2"}


@pytest.mark.parametrize("name", EXPECTED)
def test_with_no_setting(outcome: Callable[..., Any], name: str) -> None:
    expected = EXPECTED[name]
    wanted = expected if isinstance(expected, str) else texts(expected)
    assert outcome(name, "plain", {}) == wanted


@pytest.mark.parametrize(("name", "settings", "around"), CURED)
def test_with_settings(
    outcome: Callable[..., Any], name: str, settings: dict[str, Any], around: tuple[str, str]
) -> None:
    assert outcome(name, "plain", settings) == texts(around)


@pytest.mark.parametrize("name", EXPECTED)
def test_lists_of_text_parts_are_their_text(outcome: Callable[..., Any], name: str) -> None:
    parts = ([["h", "i"], ["yo"], ["and?"], ["ok ", "then"]], ("user", "assistant") * 2)
    messages = [
        {"role": role, "content": [{"type": "text", "text": text} for text in content]}
        for content, role in zip(*parts, strict=True)
    ]
    settings = next((settings for cured, settings, _ in CURED if cured == name), {})
    around = next((around for cured, _, around in CURED if cured == name), EXPECTED[name])
    wanted = around if isinstance(around, str) else texts(around)
    assert outcome(name, messages, settings) == wanted
