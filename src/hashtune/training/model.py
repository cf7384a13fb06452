"""The model that is trained, one forward for loss and probes.

A frozen base with a PEFT adapter, or a base all of whose weights are trained, in fp32.
"""

import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hashtune.errors import Finding, InputError
from hashtune.spec.methods import FULL, SOFT
from hashtune.spec.precision import stored_type, trained_type
from hashtune.spec.schema import Determinism, Method, Precision, Quantization
from hashtune.spec.targets import Matched, match
from hashtune.store.changed_logits import CHANGES_LOGITS, changed_logits
from hashtune.store.full_weights import FullModel
from hashtune.store.soft_prompts import has_virtual_tokens, with_virtual_tokens
from hashtune.training.batches import Batch
from hashtune.training.documents import attention_inputs
from hashtune.training.full import train_all
from hashtune.training.fused.attach import NOTHING, Fused, plain_products
from hashtune.training.loss import LossSums, token_losses
from hashtune.training.phases import Phase, SetPhase, nobody
from hashtune.training.quantised import prepare_quantised
from hashtune.training.soft_prompts import soft_config
from hashtune.training.targets import linear_names, lora_config, put_on
from hashtune.training.tokens import check_trainable

# by stored_type and trained_type
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def set_determinism(settings: Determinism) -> None:
    """Threads and deterministic algorithms for this process, before anything touches CUDA.

    On a CPU all of training is deterministic for a number of threads. On CUDA torch takes
    deterministic kernels where it has them and raises RuntimeError where it has none; bits are
    those of one kind of GPU, driver and set of libraries (not run on a GPU yet).
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs to be deterministic
    torch.set_num_threads(settings.threads)
    # not use_deterministic_algorithms: it does the same and imports the compiler, 1.1 s a process
    torch.set_deterministic_debug_mode("error" if settings.mode == "strict" else "default")


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def quantization_config(quantization: Quantization, precision: Precision) -> object | None:
    """The bitsandbytes settings transformers loads the base with, or None."""
    if quantization.type == "none":
        return None
    import bitsandbytes as _kernels  # noqa: F401  transformers loads it by name; `code` counts it
    from transformers import BitsAndBytesConfig

    if quantization.type == "int8":
        int8: object = BitsAndBytesConfig(load_in_8bit=True)
        return int8
    nf4: object = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=quantization.double_quant,
        bnb_4bit_compute_dtype=DTYPES[stored_type(precision)],
    )
    return nf4


@dataclass(frozen=True)
class Trainee:
    """A PEFT model, or a FullModel that answers as one, and how to run it.

    parameters: trainable name -> parameter in name order; fp32, or bf16 without master weights.
    autocast: bf16 or fp16 compute when the spec says so. targets: entry of method.targets -> how
    many modules it matches. initial: what a prompt or prefix began as; empty for LoRA, whose B
    begins at zero. fused: parts with a backward of their own. phase: is told what a training step
    does next: forward, loss, backward, optimizer.
    """

    peft: Any
    parameters: dict[str, nn.Parameter]
    precision: Precision
    targets: dict[str, int] = field(default_factory=dict)
    initial: dict[str, Tensor] = field(default_factory=dict)
    fused: Fused = NOTHING
    phase: SetPhase = nobody

    @property
    def device(self) -> torch.device:
        """Where the first trainable parameter lives."""
        return next(iter(self.parameters.values())).device

    def autocast(self) -> AbstractContextManager[object]:
        """bf16 or fp16 autocast, or nothing for fp32 and TF32."""
        if stored_type(self.precision) == "fp32":
            return contextlib.nullcontext()
        lower: AbstractContextManager[object] = torch.autocast(
            self.device.type, dtype=DTYPES[self.precision]
        )
        return lower

    @property
    def full(self) -> bool:
        """Whether the base itself is trained."""
        return isinstance(self.peft, FullModel)

    @property
    def route(self) -> str:
        """In which types it is trained, read off the model: adapter, base, compute."""
        trained = {_type_name(parameter.dtype) for parameter in self.parameters.values()}
        compute = {"fp32": "no autocast", "tf32": "TF32 products"}
        products = compute.get(self.precision, f"{self.precision} autocast")
        if self.full:
            return f"{' and '.join(sorted(trained))} weights, all trained, {products}"
        frozen = {n: p for n, p in self.peft.named_parameters() if not p.requires_grad}
        matrices = {f"{name}.weight" for name in linear_names(self.peft.get_base_model())}
        adapted = {n: p for n, p in frozen.items() if n.endswith("base_layer.weight")}
        adapted = adapted or {
            n: p for n, p in frozen.items() if n.removeprefix("base_model.") in matrices
        }
        sizes: Counter[str] = Counter()
        for parameter in adapted.values():
            sizes[_type_name(parameter.dtype)] += parameter.numel()
        base = sizes.most_common(1)[0][0]
        adapter = f"{' and '.join(sorted(trained))} adapter"
        if trained != {"fp32"}:
            adapter += " without master weights"
        return f"{adapter}, {base} base, {products}"

    def hidden(self, batch: Batch) -> Tensor:
        """Last hidden states (B, T, H) of a micro-batch, without those of virtual tokens."""
        self._next("forward")
        backbone = self.peft.get_base_model().model
        ids, positions = batch.input_ids.to(self.device), batch.position_ids.to(self.device)
        inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions}
        if has_virtual_tokens(self.peft):
            inputs = with_virtual_tokens(self.peft, ids, positions)
        attention = attention_inputs(backbone.config, batch, self.device)
        output = backbone(**inputs, **attention, use_cache=False)
        states: Tensor = output.last_hidden_state[:, -ids.shape[1] :]
        return states

    def losses(self, batch: Batch) -> LossSums:
        """Summed loss of a micro-batch's trained tokens, to be called under autocast."""
        hidden, labels = self.hidden(batch), batch.labels.to(self.device)
        self._next("loss")
        if self.fused.head is None:
            sums = token_losses(hidden, labels, self.head)
        else:
            with plain_products(self.device):
                sums = token_losses(hidden, labels, self.head, self.fused.head)
        self._next("backward")
        return sums

    def _next(self, phase: Phase) -> None:
        """Of a training step; an evaluation or a proof without gradients is one phase."""
        if torch.is_grad_enabled():
            self.phase(phase)

    def without_fused(self) -> "Trainee":
        """The same model with the plain loss; its modules stay as they are."""
        return replace(self, fused=NOTHING)

    def head(self, states: Tensor) -> Tensor:
        """Logits (N, V) of hidden states (N, H)."""
        logits: Tensor = self.peft.get_base_model().lm_head(states)
        return logits


def build_trainee(
    base: Any,
    method: Method,
    *,
    precision: Precision,
    seed: int,
    tokens: Sequence[int] = (),
    master_weights: bool = True,
    again: Callable[[], Any] | None = None,
) -> Trainee:
    """Freeze the base, put a fresh adapter on it, keep the adapter in fp32; or train the base.

    Without `master_weights` it is kept in `precision`, rounded from the fp32 it is drawn in.
    `tokens` are the ids of added tokens: their rows are trained too. Adapter initialisation
    depends on `seed` alone. `again` loads the same base once more: method.type full needs it for
    the proof of what it trained. Raises InputError for targets that match no module or that PEFT
    does not take, and for models this version cannot run (no `.model` backbone with an `.lm_head`).
    """
    if not (hasattr(base, "model") and hasattr(base, "lm_head")):
        raise InputError(
            Finding(
                "unsupported-model",
                f"{type(base).__name__} has no backbone `model` with an `lm_head`",
                field="base_model",
                fix="use a causal language model of the Llama, Qwen, Mistral, Gemma kind",
            )
        )
    names = [name for name, _ in CHANGES_LOGITS]
    if findings := changed_logits({name: getattr(base.config, name, None) for name in names}):
        raise InputError(findings)
    if method.type == FULL:
        assert again is not None, "full compares with the base as it was"
        seed_all(seed)
        model = FullModel(base, again).train()
        return Trainee(model, train_all(base), precision)
    matched = match(linear_names(base), method.targets) if method.targets else Matched((), {})
    soft = method.type in SOFT
    config = soft_config(method) if soft else lora_config(base, method, matched.names, tokens)
    if getattr(base, "is_quantized", False):
        base = prepare_quantised(base)
    seed_all(seed)
    peft = put_on(base, config, matched.names)
    peft.train()
    trainable = {n: p for n, p in sorted(peft.named_parameters()) if p.requires_grad}
    kept = DTYPES[trained_type(precision, master_weights=master_weights)]
    for parameter in trainable.values():
        parameter.data = parameter.data.to(kept)
    if tokens:
        check_trainable(peft, tokens)
    initial = {n: p.detach().clone() for n, p in trainable.items()} if soft else {}
    return Trainee(peft, trainable, precision, matched.counts, initial)


def _type_name(dtype: torch.dtype) -> str:
    """As the spec calls it; bitsandbytes keeps two NF4 values in each byte."""
    stored = {torch.uint8: "nf4", torch.int8: "int8"}
    names = stored | {value: name for name, value in DTYPES.items()}
    return names.get(dtype, str(dtype))
