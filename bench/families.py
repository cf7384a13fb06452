"""Which families of transformers train as a plain loop trains them: writes docs/families.md.

usage: python bench/families.py [MODEL_TYPE ...]     (without names: all, and writes the page)

Each causal language model of the installed transformers is built tiny and random. The default
layout (packed rows, attention by document, fused parts) takes three steps of LoRA on all linear
modules, and a plain loop of transformers and PEFT the same three over single documents. `equal`:
the first gradients and the three losses agree. Anything else is the rule that refuses the base.
"""

import logging
import math
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from hashtune.errors import InputError
from hashtune.memory.shapes import FAMILIES
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Method, Optim
from hashtune.store.loader import not_loaded
from hashtune.training.attention import check_probe, probe_row, run_probe
from hashtune.training.documents import attend_as
from hashtune.training.fused.attach import attach
from hashtune.training.fused.check import check_fused, compare_fused, gradients_of
from hashtune.training.layouts import batch_of
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.optimizers import build_optimizer
from hashtune.training.own import check_base
from hashtune.training.step import train_step

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/families.md"
STEPS, LR, SEED = 3, 0.01, 7
NOISE = 0.05
LOSS, GRADIENT = 1e-5, 1e-3  # relative: losses, and the norm of a tensor's difference
VOCABULARY, LONGEST = 96, 24
# by the names that configurations have for one thing
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "moe_intermediate_size"), 48),
    **dict.fromkeys(("shared_expert_intermediate_size", "ffn_hidden_size"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts", "num_local_experts"), 2),
    **dict.fromkeys(("n_routed_experts", "num_experts_per_tok", "moe_topk"), 2),
    **{"vocab_size": VOCABULARY, "head_dim": 8, "max_position_embeddings": 64},
    **dict.fromkeys(("dropout", "attention_dropout", "residual_dropout", "resid_dropout"), 0.0),
    **dict.fromkeys(("hidden_dropout", "activation_dropout", "embd_pdrop", "resid_pdrop"), 0.0),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "v_head_dim", "qk_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim"), 4),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **{"mamba_n_heads": 4, "mamba_d_head": 16},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
METHOD = Method(
    **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
    **{"targets": "all-linear", "virtual_tokens": None},
)
# tiny models of these need a field more
MORE: dict[str, dict[str, Any]] = {
    **{
        name: {"num_key_value_heads": 4, "head_dim": 4}
        for name in ("axk1", "axk2", "youtu", "deepseek_v3", "deepseek_v32", "glm_moe_dsa")
    },
    "dots1": {"n_shared_experts": 1},
    "bailing_hybrid": {"first_k_dense_replace": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "falcon_h1": {"mamba_d_ssm": 64},
    "minicpm3": {"num_key_value_heads": 4},
    "zaya": {"num_experts_per_tok": 1},
}
LARGEST = 6_000_000  # parameters of a model that is tried
NO_MODEL = (
    *(AttributeError, AssertionError, ImportError, KeyError, RuntimeError, TypeError, ValueError),
    StrictDataclassError,
)
NUMBER = re.compile(r"\d\.\d+e[+-]\d+")
NOT_TRIED = "Not tried, because these sizes make no model that runs, or a large one:"
INTRODUCTION = """# Families of models

Written by `python bench/families.py`, which builds each causal language model of the installed
transformers tiny and random and takes three steps of LoRA on all linear modules in fp32, with
packed rows, attention by document and fused parts. `equal`: the first gradients (1e-3 of each
tensor's norm) and the three losses (1e-5) are those of a plain loop of transformers and PEFT over
single documents. That is so for {equal} of {tried}. The others are refused before the first step:
by the rule that is named ([failures.md](failures.md)). A family is refused or not by what its
configuration says: Granite is equal without `logits_scaling`, Llama 4 without its routers' names in
`method.targets` and with short documents. `plan`: the stage of this name has a memory formula for
it; a base without one does not reach training yet.
"""
OPTIM = Optim(
    **{"name": "adamw", "lr": LR, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
    **{"grad_clip": 1e9, "neftune_alpha": None, "master_weights": True},
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`equal`, `differs`, or the rule that refuses; what it said or measured."""

    outcome: str
    detail: str


def model_types() -> list[str]:
    """All model types with a causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def config_of(model_type: str, **more: Any) -> Any:
    """A tiny configuration: the fields of SIZES that the type has."""
    from transformers import AutoConfig

    known = type(AutoConfig.for_model(model_type))().to_dict()
    fields = {name: value for name, value in SIZES.items() if name in known}
    return AutoConfig.for_model(model_type, **(fields | MORE.get(model_type, {}) | more))


def base_of(config: Any) -> Any:
    """The random base of the configuration, always the same, as load_base would load it."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    try:
        base = AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32
        )
    except ValueError as error:
        raise not_loaded(error) from error
    for parameter in base.parameters():  # some begin at zero
        parameter.data += torch.randn(parameter.shape) * NOISE
    return base.eval()


def row_of(number: int, lengths: Sequence[int]) -> Row:
    """Tokens from 3 on; the first label of each document is -100."""
    total = sum(lengths)
    ids = [
        3 + (37 * number + 11 * place + place * place) % (VOCABULARY - 3) for place in range(total)
    ]
    labels, start = list(ids), 0
    for length in lengths:
        labels[start] = IGNORE_INDEX
        start += length
    return Row(number, [f"e{number}.{i}" for i in range(len(lengths))], list(lengths), ids, labels)


ROWS = [row_of(0, [LONGEST, 7]), row_of(1, [5, 9, 3])]


def started(config: Any, rows: Sequence[Row] = ROWS) -> Trainee:
    """The trainee after every check that a run makes before its first step."""
    base = base_of(config)
    attend_as(base, "documents", rows, "fused")
    trainee = build_trainee(base, METHOD, precision="fp32", seed=SEED)
    check_base(trainee, rows, packed=True)
    trainee = replace(trainee, fused=attach(trainee.peft, precision="fp32"))
    row = probe_row(rows)
    assert row is not None
    check_probe(run_probe(trainee, row))
    check_fused(compare_fused(trainee, rows[0]), "fp32")
    return trainee


def plain(config: Any, trainee: Trainee) -> tuple[Any, dict[str, Tensor]]:
    """PEFT's model as its documentation writes it, with the adapter of the trainee."""
    from peft import LoraConfig, get_peft_model

    names = sorted(
        {n.removeprefix("base_model.model.").split(".lora_")[0] for n in trainee.parameters}
    )
    lora = LoraConfig(r=2, lora_alpha=4, target_modules=names, task_type="CAUSAL_LM")
    model = get_peft_model(base_of(config), lora).train()
    own = {n: p for n, p in sorted(model.named_parameters()) if p.requires_grad}
    assert own.keys() == trainee.parameters.keys()
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(trainee.parameters[name])
    return model, own


def plain_loss(model: Any, rows: Sequence[Row]) -> Tensor:
    """The mean over trained tokens, from the model's own loss of each document alone."""
    total, tokens = torch.zeros(()), 0
    for row in rows:
        for part in torch.tensor(row.input_ids).split(row.lengths):
            loss = model(input_ids=part[None], labels=part[None], use_cache=False).loss
            total, tokens = total + loss * (len(part) - 1), tokens + len(part) - 1
    return total / tokens


def compared(config: Any) -> Verdict:
    """Three steps of both."""
    trainee = started(config)
    shake(trainee.parameters)
    model, parameters = plain(config, trainee)
    off = gradients_off(trainee, model, parameters)
    losses = losses_off(trainee, model, parameters)
    same = off <= GRADIENT and losses <= LOSS
    detail = f"losses off by at most {losses:.0e}, gradients by {off:.0e}"
    return Verdict("equal" if same else "differs", detail)


def gradients_off(trainee: Trainee, model: Any, parameters: dict[str, Tensor]) -> float:
    """The largest relative difference of a tensor's gradient; none is left behind."""
    _, ours = gradients_of(trainee, batch_of(ROWS))
    plain_loss(model, ROWS).backward()
    tokens = sum(label != IGNORE_INDEX for row in ROWS for label in row.labels)
    own = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    model.zero_grad()
    if ours.keys() != own.keys():
        return math.inf
    differences = {name: float((ours[name] / tokens - own[name]).norm()) for name in own}
    return max(differences[name] / (float(own[name].norm()) or 1.0) for name in own)


def losses_off(trainee: Trainee, model: Any, parameters: dict[str, Tensor]) -> float:
    """The largest relative difference of the losses of STEPS steps."""
    ours, theirs = (build_optimizer(each, OPTIM) for each in (trainee.parameters, parameters))
    off = []
    for step in range(STEPS):
        result = train_step(trainee, ours, ROWS, micro=2, lr=LR, grad_clip=1e9, first=not step)
        loss = plain_loss(model, ROWS)
        loss.backward()
        theirs.step()
        theirs.zero_grad()
        off.append(abs(result.loss / float(loss.detach()) - 1))
    return max(off)


def shake(parameters: dict[str, Any]) -> None:
    """lora_B is zero at the start, and the gradient of A with it."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)


def measure(config: Any) -> Verdict:
    """What becomes of a base of this configuration."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compared(config)
    except InputError as error:
        finding = error.findings[0]
        return Verdict(finding.rule, finding.message)


def tiny(model_type: str) -> Any | None:
    """Its tiny configuration, or None where these sizes make no model that runs, or a large one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = config_of(model_type)
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in base_of(config).parameters())
            if size <= LARGEST:
                plain_loss(base_of(config), ROWS)
        except InputError as error:
            return config if "attention" in error.findings[0].message else None
        except NO_MODEL:
            return None
    return config if size <= LARGEST else None


def line(model_type: str, verdict: Verdict) -> str:
    """A line of the page; what was measured differs from machine to machine."""
    said = "" if verdict.outcome == "equal" else NUMBER.sub("…", verdict.detail)
    plan = "yes" if model_type in FAMILIES else ""
    return f"| {model_type} | {verdict.outcome} | {plan} | {said} |"


def page(verdicts: dict[str, Verdict], left: Sequence[str]) -> str:
    """docs/families.md."""
    equal = sum(verdict.outcome == "equal" for verdict in verdicts.values())
    lines = [
        INTRODUCTION.format(equal=equal, tried=len(verdicts)),
        *("| model type | result | plan | what it says |", "|---|---|---|---|"),
        *(line(name, verdict) for name, verdict in verdicts.items()),
        "",
        f"{NOT_TRIED} {', '.join(left)}.",
    ]
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> int:
    """Print each line; without names write the page. 1 if some family differs."""
    verdicts: dict[str, Verdict] = {}
    left = []
    for name in names or model_types():
        if (config := tiny(name)) is None:
            left.append(name)
            continue
        verdicts[name] = measure(config)
        print(name, verdicts[name], flush=True)
    if not names:
        OUT.write_text(page(verdicts, left), encoding="utf-8")
    return int(any(verdict.outcome == "differs" for verdict in verdicts.values()))


if __name__ == "__main__":
    logging.disable()  # of transformers, about what it falls back to
    sys.exit(main(sys.argv[1:]))
