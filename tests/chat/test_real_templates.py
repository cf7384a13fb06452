"""Templates of published models in one turn: an exact body or a clear finding, never a guess.

The expected outcomes were verified by reading each template. The tokenizer is a byte-level toy that
knows the control tokens of the template.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.chat.bodies import layouts
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.stops import stop_sequences
from hashtune.errors import InputError
from hashtune.records import Conversation

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")

SINGLE = {  # U hi, A yo: the body
    "bielik-11b-v3_0-instruct": "yo<|im_end|>",
    "gigachat3-10b-a1_8b": "yo<|message_sep|>",
    "kimi-k2-instruct": "yo<|im_end|>",
    "lfm2_5-instruct": "yo<|im_end|>",
    "mistral-small-3_2-24b-instruct-2506": "yo</s>",
    "qwen-qwen2_5-7b-instruct": "yo<|im_end|>",
    "qwen-qwen3-0_6b": "<think>\n\n</think>\n\nyo<|im_end|>",
    "qwen3-coder": "yo<|im_end|>",
    "deepseek-ai-deepseek-v3_1": "yo<｜end▁of▁sentence｜>",
    "google-gemma-2-2b-it": "yo<end_of_turn>",
    "ibm-granite-granite-4_0": "yo<|end_of_text|>",
    "meetkai-functionary-medium-v3_1": "yo<|eot_id|>",
    "meta-llama-llama-3_1-8b-instruct": "yo<|eot_id|>",
    "microsoft-phi-3_5-mini-instruct": "yo<|end|>",
    "mistralai-mistral-nemo-instruct-2407": "yo</s>",
    "openai-gpt-oss-120b": "<|channel|>final<|message|>yo<|return|>",
    "unsloth-mistral-devstral-small-2507": "yo</s>",
    "trl_qwen3_training": "<think>\n\n</think>\n\nyo<|im_end|>",
    "trl_qwen3_instruct_2507": "yo<|im_end|>",
    "trl_gemma3": "yo<end_of_turn>",
    "trl_glm4moe_training": "\n<think></think>\nyo<|user|>",
    "trl_llama3_training": "yo<|eot_id|>",
    "axo_exaone4": "yo[|endofturn|]",
    "axo_jamba": " yo<|eom|>",
    "axo_phi_4": "yo<|im_end|>",
    "axo_metharme": "yo</s>",
    "axo_llama4": "yo<|eot|>",
    "cz_llama-2-chat": " yo </s>",
    "cz_vicuna": " yo</s>",
    "thebloke--deepseek-coder-33b-instruct-awq": "yo\n<|EOT|>",
}
REFUSED = {  # the same, no exact body at default arguments: the rule
    "apriel-1_6-15b-thinker-fixed": "no-stop",
    "cohereforai-c4ai-command-r7b-12-2024-tool_use": "mismatch",
    "glm-4_6": "no-stop",
    "glm-4_7-flash": "no-stop",
    "nvidia-nemotron-nano-v2": "open-reasoning",
    "nousresearch-hermes-2-pro-llama-3-8b-tool_use": "template-refuses",  # iterates tools
    "qwen-qwq-32b": "mismatch",
    "qwen3_5-4b": "mismatch",
    "deepseek-ai-deepseek-r1-distill-llama-8b": "mismatch",
    "google-gemma-4-31b-it": "mismatch",
}
CURED = [  # arguments, stops and policies that give an exact body
    ("qwen-qwen3-0_6b", {"enable_thinking": False}, [], "error", "yo<|im_end|>"),
    ("qwen3_5-4b", {"enable_thinking": False}, [], "error", "yo<|im_end|>"),
    ("qwen3_5-4b", {}, [], "as_stored", "yo<|im_end|>"),
    ("qwen-qwq-32b", {}, [], "as_prompted", "yo<|im_end|>"),
    ("glm-4_6", {}, ["<|user|>"], "error", "\n<think></think>\nyo<|user|>"),
    ("glm-4_7-flash", {}, ["<|user|>"], "as_stored", "yo<|user|>"),
    ("glm-4_7-flash", {"enable_thinking": False}, ["<|user|>"], "error", "yo<|user|>"),
    ("apriel-1_6-15b-thinker-fixed", {}, ["<|end|>"], "as_stored", "yo\n<|end|>"),
    ("google-gemma-4-31b-it", {}, [], "as_prompted", "yo<turn|>"),
    (
        "cohereforai-c4ai-command-r7b-12-2024-tool_use",
        {},
        [],
        "as_stored",
        "yo<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
    ),
    (
        "deepseek-ai-deepseek-r1-distill-llama-8b",
        {},
        [],
        "as_stored",
        "yo<｜end▁of▁sentence｜>",
    ),
]


def body_texts(
    template: Any, messages: list[Any], declared: list[str], **policies: str
) -> list[str]:
    """The bodies of a conversation that also passes the proof."""
    chosen: dict[str, Any] = {"unstable": "error", "mismatch": "error", **policies}
    stops = stop_sequences(template, eos_ids=[], declared=declared)
    conversation = Conversation("c", "s", messages, 1)
    done = tokenize_conversation(conversation, template, stops, loss_on="assistant", **chosen)
    turns = [k for k, message in enumerate(messages) if message["role"] == "assistant"]
    plan = layouts(template, messages, stops, turns=turns, **chosen)
    texts = [part.text[body.start : body.end] for part in plan for body in part.bodies]
    trained = [token for e in done.examples for token in e.labels if token != -100]
    assert template.tokenizer.decode(trained) == "".join(texts)
    return texts


def rules(call: Callable[[], Any]) -> set[str]:
    with pytest.raises(InputError) as caught:
        call()
    return {finding.rule for finding in caught.value.findings}


def test_every_template_is_accounted_for() -> None:
    names = {path.stem for path in SHARED.glob("*.jinja")}
    assert names == SINGLE.keys() | REFUSED.keys()
    assert not SINGLE.keys() & REFUSED.keys()


@pytest.mark.parametrize("name", SINGLE)
def test_exact_body(real: Any, talk: Callable[..., Any], name: str) -> None:
    assert body_texts(real(name), talk("hi", "yo"), []) == [SINGLE[name]]


@pytest.mark.parametrize("name", REFUSED)
def test_clear_finding(real: Any, talk: Callable[..., Any], name: str) -> None:
    assert rules(lambda: body_texts(real(name), talk("hi", "yo"), [])) == {REFUSED[name]}


@pytest.mark.parametrize(("name", "kwargs", "declared", "mismatch", "body"), CURED)
def test_declared_cures(
    real: Any,
    talk: Callable[..., Any],
    *,
    name: str,
    kwargs: dict[str, Any],
    declared: list[str],
    mismatch: str,
    body: str,
) -> None:
    template = real(name, stored=mismatch == "as_stored", **kwargs)
    assert body_texts(template, talk("hi", "yo"), declared, mismatch=mismatch) == [body]


def test_system_role_that_gemma_2_refuses(real: Any, talk: Callable[..., Any]) -> None:
    template = real("google-gemma-2-2b-it")
    messages = [{"role": "system", "content": "s"}, *talk("hi", "yo")]
    with pytest.raises(
        InputError, match=r"messages\[0\].role: template does not accept role 'system'"
    ):
        body_texts(template, messages, [])


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("openai-gpt-oss-120b", "Current date: 2024-07-26"),
        ("meta-llama-llama-3_1-8b-instruct", "Today Date: 26 Jul 2024"),
        ("mistral-small-3_2-24b-instruct-2506", "2024-07-26"),
    ],
)
def test_date_is_pinned(real: Any, talk: Callable[..., Any], name: str, printed: str) -> None:
    assert printed in real(name).render(talk("hi", "yo"))
