"""Loss and gradients of a step against a plain transformers and PEFT loop, for each method.

Both in fp32 on the same rows without padding and the same adapter weights, B not zero. Stated
tolerance: loss 1e-6 relative, each gradient 1e-5 of its largest element.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.records import Row
from hashtune.spec.schema import Method, Quantization
from hashtune.training.batches import collate
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee, build_trainee, quantization_config

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

Case = tuple[str, str]
CASES: list[Case] = [
    ("lora", "none"),
    ("rslora", "none"),
    ("dora", "none"),
    ("lora", "nf4"),
    ("lora", "int8"),
    ("dora", "nf4"),
]


def ours(folder: Path, case: Case) -> Trainee:
    from transformers import AutoModelForCausalLM

    variant, stored = case
    kind: Any = {"type": stored, "double_quant": stored == "nf4"}
    base = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        quantization_config=quantization_config(Quantization(**kind), "fp32"),
    )
    chosen: Any = {"type": "lora" if stored == "none" else "qlora", "variant": variant}
    method = Method(
        **chosen, r=2, alpha=4.0, dropout=0.0, targets="all-linear", virtual_tokens=None
    )
    return build_trainee(base, method, precision="fp32", seed=7)


def plain(folder: Path, case: Case) -> Any:
    """As the documentation of PEFT writes it, with nothing of this project."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    variant, stored = case
    settings = {
        "none": None,
        "int8": BitsAndBytesConfig(load_in_8bit=True),
        "nf4": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        ),
    }[stored]
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=settings
    )
    if settings is not None:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    config = LoraConfig(
        r=2,
        lora_alpha=4,
        target_modules="all-linear",
        use_rslora=variant == "rslora",
        use_dora=variant == "dora",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config).train()


def shake(parameters: dict[str, Tensor]) -> None:
    """The same noise for the same names: lora_B is zero at the start, and A's gradient with it."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)


def both(folder: Path, rows: list[Row], case: Case, other: Case) -> tuple[Any, Any]:
    """(loss, gradients by name) of our step and of the plain loop with our adapter's weights."""
    trainee, model = ours(folder, case), plain(folder, other)
    shake(trainee.parameters)
    theirs = {n: p for n, p in sorted(model.named_parameters()) if p.requires_grad}
    assert theirs.keys() == trainee.parameters.keys()
    with torch.no_grad():
        for name, parameter in theirs.items():
            parameter.copy_(trainee.parameters[name])
    batch = collate(rows)
    sums = token_losses(trainee.hidden(batch), batch.labels, trainee.head)
    (sums.loss / sums.tokens).backward()
    loss = model(input_ids=batch.input_ids, labels=batch.labels).loss
    loss.backward()
    return (
        (
            float(sums.loss.detach()) / sums.tokens,
            {n: p.grad for n, p in trainee.parameters.items()},
        ),
        (float(loss.detach()), {n: p.grad for n, p in theirs.items()}),
    )


@pytest.fixture
def rows(make_row: Callable[[int, list[int]], Row]) -> list[Row]:
    return [make_row(1, [9]), make_row(2, [9])]


@pytest.mark.parametrize("stored", ["nf4", "int8"])
def test_gradients_are_the_same_after_an_evaluation(
    stored: str, base_folder: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bitsandbytes lays weights out anew in evaluation, where it takes the CPU for one with bf16;
    then the first layers' lora_B have no gradient."""
    from bitsandbytes import functional
    from bitsandbytes.nn import modules

    packed = []
    convert = functional._convert_weight_packed_for_cpu
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: True)
    monkeypatch.setattr(
        modules, "_convert_weight_packed_for_cpu", lambda *x: packed.append(x) or convert(*x)
    )
    trainee, batch = ours(base_folder, ("lora", stored)), collate(rows)
    trainee.peft.eval()
    with torch.no_grad():
        trainee.hidden(batch)
    trainee.peft.train()
    trainee.losses(batch).loss.backward()
    assert packed == []
    for name, parameter in trainee.parameters.items():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()) is ("lora_B" in name), name


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_loss_and_gradients(case: Case, base_folder: Path, rows: list[Row]) -> None:
    (loss, grads), (their_loss, their_grads) = both(base_folder, rows, case, case)
    assert loss == pytest.approx(their_loss, rel=1e-6)
    magnitudes = sum("magnitude" in name for name in grads)
    assert (len(grads), magnitudes) == ((42, 14) if case[0] == "dora" else (28, 0))
    for name, grad in grads.items():
        largest = float(their_grads[name].abs().max())
        assert largest > 0.0, name
        assert float((grad - their_grads[name]).abs().max()) <= 1e-5 * largest, name


def test_another_scale_is_no_parity(base_folder: Path, rows: list[Row]) -> None:
    """Planted fault: rsLoRA here, LoRA there."""
    (loss, _), (their_loss, _) = both(base_folder, rows, ("rslora", "none"), ("lora", "none"))
    assert loss != pytest.approx(their_loss, rel=1e-6)


@pytest.mark.parametrize(("variant", "scale"), [("lora", 4 / 2), ("rslora", 4 / math.sqrt(2))])
def test_scale(variant: str, scale: float, base_folder: Path) -> None:
    module = ours(base_folder, (variant, "none")).peft.get_base_model().model.layers[0].mlp.up_proj
    assert module.scaling == {"default": scale}


@pytest.mark.parametrize("stored", ["nf4", "int8"])
def test_the_route_names_how_the_base_is_stored(base_folder: Path, stored: str) -> None:
    assert ours(base_folder, ("lora", stored)).route == f"fp32 adapter, {stored} base, no autocast"
