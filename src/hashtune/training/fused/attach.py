"""Put the parts with a backward of their own into a model, where they compute what it computes.

A module is taken by its structure and then tried: on random input its own forward and the part's
must agree. Modules that fail, and calls that a part is not made for (an adapter switched off or
merged, dropout, DoRA, another type), stay with their own forward. Parameters and their names stay.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hashtune.training.fused.lora import Frozen, GatedLinear, LoraLinear
from hashtune.training.fused.norm import RmsNorm

Forward = Callable[..., Tensor]
# of the largest value: another order of roundings (bf16 has 8 bits of significand, fp16 11)
AGREEMENT = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@dataclass(frozen=True, slots=True)
class Fused:
    """What was put in: (module, forward) pairs by kind, and the head's weight where its loss has a
    backward of its own."""

    modules: dict[str, list[tuple[Any, Forward]]]
    head: Tensor | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Modules by kind, and 1 for the head."""
        return {kind: len(pairs) for kind, pairs in self.modules.items()} | {
            "head": int(self.head is not None)
        }

    @contextmanager
    def off(self) -> Iterator[None]:
        """The modules' own forward meanwhile."""
        pairs = [pair for pairs in self.modules.values() for pair in pairs]
        for module, _ in pairs:
            del module.forward
        try:
            yield
        finally:
            for module, forward in pairs:
                module.forward = forward


NOTHING = Fused({})


def attach(peft: Any, *, precision: str) -> Fused:
    """Give modules of a PEFT model a forward whose backward is ours.

    Args:
        peft: the model with its adapter.
        precision: fp16 keeps the plain loss, whose gradients are scaled before they are rounded.
    """
    base = peft.get_base_model()
    found: dict[str, list[tuple[Any, Forward]]] = {"linear": [], "gated": [], "norm": []}
    for module in base.modules():
        if _is_lora(module):
            found["linear"].append((module, _linear(module)))
        elif _is_norm(module) and _agrees(module, forward := _norm(module), module.weight):
            found["norm"].append((module, forward))
    for module, forward in found["linear"]:
        module.forward = forward
    for module in base.modules():  # after their linear layers: the trial calls them
        if _is_gated(module) and _agrees(module, forward := _gated(module), _weight(module)):
            found["gated"].append((module, forward))
    for module, forward in [*found["norm"], *found["gated"]]:
        module.forward = forward
    head = base.lm_head
    frozen = type(head) is nn.Linear and head.bias is None and not head.weight.requires_grad
    right = frozen and precision != "fp16" and head.weight.dtype == _type_of(precision)
    return Fused(found, head.weight if right else None)


def plain_products(device: torch.device) -> AbstractContextManager[object]:
    """Without autocast: the parts round by themselves."""
    without: AbstractContextManager[object] = torch.autocast(device.type, enabled=False)
    return without


def _type_of(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _is_lora(module: Any) -> bool:
    """PEFT's LoRA over a plain linear layer, not over a quantised one."""
    from peft.tuners.lora import Linear

    return type(module) is Linear and type(module.base_layer) is nn.Linear


def _adapter(module: Any) -> str | None:
    """The one adapter in use, if it is plain LoRA without dropout just now; else None."""
    names = module.active_adapters
    if len(names) != 1 or module.disable_adapters or module.merged:
        return None
    name: str = names[0]
    if name not in module.lora_A or name in module.lora_variant:
        return None
    dropout = module.lora_dropout[name]
    if module.lora_B[name].bias is not None or (dropout.training and type(dropout) is nn.Dropout):
        return None
    return name


def _frozen(module: Any, name: str) -> Frozen:
    return Frozen(module.base_layer.weight, module.base_layer.bias, module.scaling[name])


def _linear(module: Any) -> Forward:
    own = module.forward

    def forward(x: Tensor, *others: Any, **named: Any) -> Tensor:
        name = _adapter(module)
        if name is None or others or named or x.dtype != module.base_layer.weight.dtype:
            plain: Tensor = own(x, *others, **named)
            return plain
        a, b = module.lora_A[name].weight, module.lora_B[name].weight
        with plain_products(x.device):
            result: Tensor = LoraLinear.apply(x, a, b, _frozen(module, name))
        return result

    return forward


def _is_norm(module: Any) -> bool:
    """A norm with one frozen vector."""
    parameters = [name for name, _ in module.named_parameters()]
    named = type(module).__name__.endswith("RMSNorm") and parameters == ["weight"]
    return named and not module.weight.requires_grad and _eps(module) is not None


def _eps(module: Any) -> float | None:
    found: float | None = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found


def _norm(module: Any) -> Forward:
    own, eps = module.forward, _eps(module)

    def forward(x: Tensor) -> Tensor:
        weight = module.weight
        result: Tensor = own(x) if x.dtype != weight.dtype else RmsNorm.apply(x, weight, eps)
        return result

    return forward


def _is_gated(module: Any) -> bool:
    """gate_proj, up_proj, down_proj and an activation, the last layer with LoRA."""
    children = {name for name, _ in module.named_children()}
    return children == {"gate_proj", "up_proj", "down_proj", "act_fn"} and _is_lora(
        module.down_proj
    )


def _weight(module: Any) -> Tensor:
    """A row of the gate's weight is as long as the module's input."""
    gate = module.gate_proj
    weight: Tensor = getattr(gate, "base_layer", gate).weight
    return weight[0]


def _gated(module: Any) -> Forward:
    own, down = module.forward, module.down_proj

    def forward(x: Tensor) -> Tensor:
        name = _adapter(down)
        if name is None or x.dtype != down.base_layer.weight.dtype:
            plain: Tensor = own(x)
            return plain
        a, b = down.lora_A[name].weight, down.lora_B[name].weight
        gate, up = module.gate_proj(x), module.up_proj(x)
        with plain_products(x.device):
            result: Tensor = GatedLinear.apply(gate, up, a, b, _frozen(down, name))
        return result

    return forward


def _agrees(module: Any, forward: Forward, like: Tensor) -> bool:
    """Whether both give one result for random input as wide as `like`, of its type."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, len(like), generator=generator).to(like.device, like.dtype)
    with torch.no_grad():
        expected, got = module.forward(x), forward(x)
    if expected.dtype != got.dtype:
        return False
    off = (expected - got).abs().max() / expected.abs().max()
    return bool(off <= AGREEMENT[like.dtype])
