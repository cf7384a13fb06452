"""One measurement of bench/ablation.py: a setting in, one line of JSON out."""

import json
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from ablation import Setting, documents, switches
from rounds import machine, memory
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from hashtune.packing.rows import build_rows
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Determinism, Kernels, Method, Optim
from hashtune.training import model as training_model
from hashtune.training import step
from hashtune.training.documents import attend_as
from hashtune.training.fused.attach import attach
from hashtune.training.loss import Head, LossSums
from hashtune.training.model import Trainee, build_trainee, seed_all, set_determinism
from hashtune.training.optimizers import build_optimizer

LORA = Method(
    type="lora",
    variant="lora",
    r=16,
    alpha=32.0,
    dropout=0.0,
    targets="all-linear",
    virtual_tokens=None,
)
OPTIM = Optim(
    name="adamw_fused",
    lr=2e-4,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    grad_clip=1.0,
    neftune_alpha=None,
    master_weights=True,
)
SEED = 0
PRODUCT, PRODUCTS = 2048, 5  # size and number of the matrix products behind the measured peak


class Whole:
    """Full fine-tuning: what Trainee asks of a PEFT model."""

    active_peft_config = SimpleNamespace(is_prompt_learning=False)

    def __init__(self, model: Any) -> None:
        self.model = model

    def get_base_model(self) -> Any:
        """The model itself."""
        return self.model


def main() -> None:
    """Train the steps of one variant."""
    setting = Setting(**json.loads(sys.argv[1]))
    on = switches(setting.variant)
    set_determinism(Determinism(mode=setting.determinism, threads=setting.threads))
    base = base_of(setting).to(setting.device)
    kernels: Kernels = "fused" if "fused" in on else "plain"
    attend_as(base, "documents" if "documents" in on else "mask", [], kernels)
    parameters = sum(parameter.numel() for parameter in base.parameters())
    vocabulary = base.config.vocab_size
    trainee = switched_on(trainee_of(base, setting), on)
    results, ends = trained(trainee, rows_of(setting, vocabulary, on), setting, on)
    seconds = [end - start for start, end in pairwise(ends)]
    tokens = sum(result.tokens for result in results[setting.warmup :])
    report = {
        "machine": machine(setting.device),
        "versions": " ".join(
            f"{name} {version(name)}" for name in ("torch", "transformers", "peft")
        ),
        "parameters": parameters,
        "first_loss": results[0].loss,
        "first_norm": results[0].grad_norm,
        "last_loss": results[-1].loss,
        "first_seconds": seconds[0],
        "step_seconds": median(seconds[setting.warmup :]),
        "tokens_per_second": tokens / sum(seconds[setting.warmup :]),
        "peak_bytes": memory(setting.device),
        "product_flops": product_flops(setting),
    }
    print(json.dumps(report))


def base_of(setting: Setting) -> Any:
    """The base in the type its weights are kept in: all trained weights are fp32."""
    half = setting.precision == "bf16" and setting.method == "lora"
    dtype = torch.bfloat16 if half else torch.float32
    if setting.base is not None:
        return AutoModelForCausalLM.from_pretrained(
            setting.base, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    seed_all(SEED)
    config = LlamaConfig(
        hidden_size=setting.hidden,
        num_hidden_layers=setting.layers,
        num_attention_heads=setting.heads,
        num_key_value_heads=setting.kv_heads,
        intermediate_size=setting.intermediate,
        vocab_size=setting.vocabulary,
        max_position_embeddings=setting.seq_len,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).to(dtype)


def trainee_of(base: Any, setting: Setting) -> Trainee:
    """The model with an adapter, or with all of its weights trained."""
    if setting.method == "lora":
        return build_trainee(base, LORA, precision=setting.precision, seed=SEED)
    base.train()
    return Trainee(Whole(base), dict(sorted(base.named_parameters())), setting.precision)


def switched_on(trainee: Trainee, on: frozenset[str]) -> Trainee:
    """With what a variant changes in the model and in the step."""
    model = trainee.peft.get_base_model()
    if "checkpointing" in on:
        model.activation_checkpointing_enable(
            activation_checkpointing_kwargs={"use_reentrant": False}
        )
    if "compile" in on:
        for layer in model.model.layers:  # all share one compilation, the whole would unroll them
            layer.compile(dynamic=True)
    if "full-logits" in on:
        training_model.token_losses = full_logits
    if "fused" in on:
        return replace(trainee, fused=attach(trainee.peft, precision=trainee.precision))
    return trainee


def full_logits(
    hidden: Tensor, labels: Tensor, head: Head, frozen: Tensor | None = None
) -> LossSums:
    """The summed loss from the logits of all positions."""
    logits = head(hidden[:, :-1].flatten(0, 1)).float()
    targets = labels[:, 1:].flatten()
    loss = functional.cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="sum")
    return LossSums(loss, int((targets != IGNORE_INDEX).sum()), 0, 0.0)


def rows_of(setting: Setting, vocabulary: int, on: frozenset[str]) -> list[Row]:
    """The rows of every step."""
    examples = documents(
        count=setting.documents, seq_len=setting.seq_len, vocabulary=vocabulary, seed=SEED
    )
    return build_rows(examples, max_seq_len=setting.seq_len, packing="packing" in on)


def trained(
    trainee: Trainee, rows: list[Row], setting: Setting, on: frozenset[str]
) -> tuple[list[step.StepResult], list[float]]:
    """The result of each step; the second at which training began and those at which steps end."""
    optimizer = build_optimizer(trainee.parameters, OPTIM)
    results, ends = [], [time.perf_counter()]
    for _ in range(setting.warmup + setting.steps):
        results.append(
            step.train_step(
                trainee,
                optimizer,
                rows,
                micro=1 if "packing" in on else setting.micro,
                lr=OPTIM.lr,
                grad_clip=OPTIM.grad_clip,
            )
        )
        if setting.device == "cuda":
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
    return results, ends


def product_flops(setting: Setting) -> float:
    """Operations per second of the fastest of a few matrix products, measured after training."""
    dtype = torch.bfloat16 if setting.precision == "bf16" else torch.float32
    left, right = (
        nn.init.ones_(torch.empty(PRODUCT, PRODUCT, dtype=dtype, device=setting.device))
        for _ in range(2)
    )
    fastest = float("inf")
    for _ in range(PRODUCTS):
        start = time.perf_counter()
        float((left @ right)[0, 0])  # waits for the device
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * PRODUCT**3 / fastest


if __name__ == "__main__":
    main()
