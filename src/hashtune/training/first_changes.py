"""What to change first when memory runs out, by the part that is to blame.

A change that the plan reckoned with comes with its saving. The rest is what helps that part and is
not set yet. Pure words: no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hashtune.spec.methods import FULL
from hashtune.spec.schema import Spec

Blamed = Literal["weights", "state", "activations", "logits", "evaluation"]
# the fields whose change helps a part, as the plan's settings begin ("activations=full")
FIELDS: dict[Blamed, tuple[str, ...]] = {
    "weights": ("method", "quantization", "precision"),
    "state": ("method", "optim", "method.r", "method.virtual_tokens"),
    "activations": (
        *("activations", "batch.micro", "kernels", "batch.attention", "method.dropout"),
        *("activations.offload", "data.max_seq_len"),
    ),
    "logits": ("kernels", "batch.micro", "data.max_seq_len"),
    "evaluation": ("batch.micro", "data.max_seq_len"),
}
MICRO = "a lower batch.micro, with batch.grad_accum raised by as much"
SHORTER = "a lower data.max_seq_len"


@dataclass(frozen=True, slots=True)
class Changes:
    """The first changes to make to a spec."""

    spec: Spec

    def first(self, blamed: Blamed, planned: Sequence[tuple[str, float]] = ()) -> str:
        """What helps this part: the plan's changes with their saving in GB, else words."""
        fields = FIELDS[blamed]
        known = [
            f"{setting} saves {saves:.2f} GB"
            for setting, saves in planned
            if setting.partition("=")[0] in fields
        ]
        return ", or ".join(known or self._words(blamed))

    def _words(self, blamed: Blamed) -> list[str]:
        return list(getattr(self, f"_{blamed}")())

    def _weights(self) -> Iterator[str]:
        if self.spec.quantization.type == "none":
            yield "method=qlora"
        if self.spec.precision == "fp32" and self.spec.method.type != FULL:
            yield "precision=bf16"
        yield "a smaller base_model"

    def _state(self) -> Iterator[str]:
        if self.spec.method.type == FULL:
            yield "method=lora"
        if not self.spec.optim.name.endswith("8bit"):
            yield "optim=adamw_8bit"
        if (self.spec.method.r or 1) > 1:
            yield "a lower method.r"
        yield "a smaller base_model"

    def _activations(self) -> Iterator[str]:
        if self.spec.activations.checkpointing != "full":
            yield "activations=full"
        yield from self._logits()

    def _logits(self) -> Iterator[str]:
        if self.spec.kernels == "plain":
            yield "kernels=fused"
        yield from self._evaluation()

    def _evaluation(self) -> Iterator[str]:
        if self.spec.batch.micro > 1:
            yield MICRO
        yield SHORTER
