"""docs/families.md is what the command writes; a family is equal only where a plain loop agrees."""

from types import ModuleType
from typing import Any

import pytest
import torch

from hashtune.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
FAMILIES = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma"),
    *("gemma2", "gemma3_text", "phi", "phi3", "phimoe", "gpt2", "gpt_neox", "olmo2", "granite"),
    *("cohere", "deepseek_v3", "falcon", "bloom", "opt", "mpt", "stablelm", "starcoder2"),
    *("smollm3", "glm4", "glm4_moe", "nemotron", "llama4_text", "jamba", "recurrent_gemma"),
    *("blenderbot-small", "doge", "falcon_h1", "granitemoe"),
)


@pytest.fixture(scope="module")
def families(script) -> ModuleType:
    """The script as a module."""
    return script("families")


@pytest.fixture(scope="module")
def tiny_models(script) -> ModuleType:
    """Where its models come from."""
    return script("tiny_models")


@pytest.fixture(scope="module")
def page(root) -> list[str]:
    """Lines of the page."""
    return (root / "docs/families.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_has_the_line_that_the_command_writes(families, tiny_models, page, name) -> None:
    assert families.line(name, families.measure(tiny_models.config_of(name))) in page


def test_the_page_has_every_model_type_and_none_that_differs(families, tiny_models, page) -> None:
    lines = [line.split(" | ") for line in page if line.startswith("| ")][1:]
    named = {line[0].removeprefix("| "): line[1] for line in lines}
    left = page[-1].removeprefix(families.NOT_TRIED).strip(" .").split(", ")
    assert sorted([*named, *left]) == tiny_models.model_types()
    assert "differs" not in named.values()
    equal = sum(result == "equal" for result in named.values())
    assert f"That is so for {equal} of {len(named)}." in " ".join(page)
    assert {line[0].removeprefix("| ") for line in lines if line[2] == "yes"} <= set(
        families.FAMILIES
    )


def test_planted_another_scale_differs(families, tiny_models, monkeypatch) -> None:
    plain = families.plain

    def scaled(config: Any, trainee: Any) -> Any:
        model, parameters = plain(config, trainee)
        model.get_base_model().model.layers[1].mlp.up_proj.scaling["default"] *= 1.01
        return model, parameters

    monkeypatch.setattr(families, "plain", scaled)
    assert families.measure(tiny_models.config_of("llama")).outcome == "differs"


@pytest.mark.parametrize(
    ("name", "said"), [("cohere", "changes its logits after the head"), ("minicpm3", "its states")]
)
def test_planted_without_the_checks_another_head_differs(
    families, tiny_models, monkeypatch, name: str, said: str
) -> None:
    """By name, then by measure; where nothing refuses it the loss is another."""
    from hashtune.training import model

    config = tiny_models.config_of(name)
    assert "changes its logits (" in families.measure(config).detail
    monkeypatch.setattr(model, "changed_logits", lambda _: [])
    verdict = families.measure(config)
    assert verdict.outcome == "unsupported-model"
    assert said in verdict.detail
    monkeypatch.setattr(families, "check_base", lambda *_, **__: None)
    assert families.measure(config).outcome == "differs"


def test_llama_4_is_equal_with_the_targets_that_its_refusal_names(
    families, tiny_models, monkeypatch
) -> None:
    config = tiny_models.config_of("llama4_text")
    with pytest.raises(InputError) as caught:
        families.started(config)
    fix = caught.value.findings[0].fix
    names = fix.removeprefix("method.targets=[").removesuffix("]").split(",")
    named = families.METHOD.model_copy(update={"targets": names})
    monkeypatch.setattr(families, "METHOD", named)
    assert families.measure(config).outcome == "equal"


def test_a_configuration_that_makes_no_model_is_not_tried(
    families, tiny_models, monkeypatch
) -> None:
    more = tiny_models.MORE
    monkeypatch.setitem(more, "llama", {"hidden_size": 33})
    assert families.tiny("llama") is None
    monkeypatch.setitem(more, "llama", {"vocab_size": 1_000_000})
    assert families.tiny("llama") is None
    monkeypatch.setitem(more, "llama", {})
    assert families.tiny("llama") is not None
