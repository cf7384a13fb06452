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
from tiny_models import ROWS, SEED, base_of, model_types, plain_loss, tiny
from torch import Tensor

from hashtune.errors import InputError
from hashtune.memory.shapes import FAMILIES
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Method, Optim
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
STEPS, LR = 3, 0.01
LOSS, GRADIENT = 1e-5, 1e-3  # relative: losses, and the norm of a tensor's difference
METHOD = Method(
    **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
    **{"targets": "all-linear", "virtual_tokens": None},
)
NUMBER = re.compile(r"\d\.\d+e[+-]\d+")
NOT_TRIED = "Not tried, because these sizes make no model that runs, or a large one:"
INTRODUCTION = """# Families of models

Written by `python bench/families.py`, which builds each causal language model of the installed
transformers tiny and random and takes three steps of LoRA on all linear modules in fp32, with
packed rows, attention by document and fused parts. `equal`: the first gradients (1e-3 of each
tensor's norm) and the three losses (1e-5) are those of a plain loop of transformers and PEFT over
single documents. That is so for {equal} of {tried}. The others are refused before the first update,
by the rule that is named ([failures.md](failures.md)). A family is refused or not by what its
configuration and `method.targets` say: Granite is equal without `logits_scaling`, Llama 4 with the
targets that the refusal names. `plan`: the plan has the family in its table;
of another it reads the shapes from the model that transformers builds.
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
