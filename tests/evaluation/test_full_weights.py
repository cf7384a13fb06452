"""A base with trained weights of its own: what is loaded is what was trained, or is refused."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import writers
from hashtune.errors import InputError
from hashtune.evaluation.models import load_evaluated
from hashtune.stages.release import full_config
from hashtune.store.full_weights import CONFIG, WEIGHTS, FullModel, has_full_weights
from hashtune.store.loader import load_base, resolve
from hashtune.store.manifest import Manifest

PIN: Any = {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None, "sha256": None}
IDS = torch.tensor([[5, 6, 7, 8]])
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.set_deterministic_debug_mode("default")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HASHTUNE_HOME", str(tmp_path_factory.mktemp("home")))
        yield resolve(PIN, name="synthetic", say=lambda text: None)


@pytest.fixture
def adapter(manifest: Manifest, tmp_path: Path) -> Path:
    """The folder that training leaves, each weight a hundredth larger than the base's."""
    base = load_base(manifest, dtype="fp32")
    tensors = {name: p.detach() * 1.01 for name, p in base.named_parameters()}
    save_file(tensors, tmp_path / WEIGHTS, metadata={"format": "pt"})
    rows = len(tensors[EMBEDDING])
    config = {"method": "full", "dtype": "float32", "vocab_size": rows}
    writers.write_json(tmp_path / CONFIG, config)
    return tmp_path


def load(manifest: Manifest, adapter: Path | None, dtype: Any = "fp32") -> Any:
    return load_evaluated(manifest, adapter, dtype=dtype, threads=1)


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(input_ids=IDS).logits
    return result


def change(adapter: Path, edit: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(edit(load_file(adapter / WEIGHTS)), adapter / WEIGHTS)


def test_the_logits_are_those_of_the_trained_weights_and_the_base_is_still_there(
    manifest: Manifest, adapter: Path
) -> None:
    trained = load_base(manifest, dtype="fp32")
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(1.01)
    base, model = logits(load(manifest, None)), load(manifest, adapter)
    assert torch.equal(logits(model), logits(trained))
    assert not torch.equal(logits(model), base)
    with model.disable_adapter():
        assert torch.equal(logits(model), base)
    assert torch.equal(logits(model), logits(trained))
    assert not model.training
    assert model.base.lm_head.weight is model.base.get_input_embeddings().weight


def test_bf16_rounds_the_same_numbers(manifest: Manifest, adapter: Path) -> None:
    model = load(manifest, adapter, "bf16")
    tensors = load_file(adapter / WEIGHTS)
    assert all(torch.equal(p, tensors[n].bfloat16()) for n, p in model.named_parameters())


def test_what_is_released_is_a_whole_model(manifest: Manifest, adapter: Path) -> None:
    from transformers import AutoModelForCausalLM

    writers.write_json(adapter / "config.json", full_config(manifest, adapter))
    alone, report = AutoModelForCausalLM.from_pretrained(adapter, output_loading_info=True)
    assert not report["missing_keys"]
    assert next(alone.parameters()).dtype == torch.float32
    assert torch.equal(logits(alone.eval()), logits(load(manifest, adapter)))


@pytest.mark.parametrize(
    ("edit", "rule", "name"),
    [
        (lambda t: {n: v for n, v in t.items() if n != NORM}, "adapter-missing", NORM),
        (lambda t: {**t, "x.weight": t[NORM].clone()}, "adapter-unexpected", "x.weight"),
        (lambda t: {**t, NORM: t[NORM][1:].clone()}, "adapter-shape", NORM),
        (lambda t: {**t, NORM: t[NORM] * torch.nan}, "adapter-values", NORM),
        (lambda t: {**t, NORM: t[NORM].bfloat16()}, "adapter-type", NORM),
    ],
)
def test_what_does_not_fit_is_refused_by_file_and_name(
    edit: Any, rule: str, name: str, manifest: Manifest, adapter: Path
) -> None:
    change(adapter, edit)
    with pytest.raises(InputError) as caught:
        load(manifest, adapter)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file) == (rule, (adapter / WEIGHTS).as_posix())
    assert finding.message.startswith("1 tensors") and finding.message.endswith(f": {name}")


def test_no_file_and_no_safetensors(manifest: Manifest, adapter: Path) -> None:
    (adapter / WEIGHTS).write_bytes(b"no tensors")
    with pytest.raises(InputError, match="adapter-broken"):
        load(manifest, adapter)
    (adapter / WEIGHTS).unlink()
    assert has_full_weights(adapter)  # full.json says so
    with pytest.raises(InputError, match="no-adapter"):
        load(manifest, adapter)


def test_nobody_pays_for_a_second_base_but_who_asks(manifest: Manifest, adapter: Path) -> None:
    base = load_base(manifest, dtype="fp32")
    model = FullModel(base, lambda: pytest.fail("it loaded"))
    model.lay_over(adapter)
    assert logits(model).shape[1] == 4
