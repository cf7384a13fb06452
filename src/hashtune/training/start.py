"""What a training run starts from: the base, the adapter on it, the packing plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hashtune import writers
from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.device import no_gpu
from hashtune.spec.methods import FULL, SOFT, full_findings
from hashtune.spec.precision import stored_type, tf32_on_cpu, without_master
from hashtune.spec.schema import Spec
from hashtune.store.added_tokens import rows_needed, token_ids
from hashtune.store.loader import load_base, load_tokenizer
from hashtune.store.manifest import Manifest
from hashtune.store.numerics import set_fp32_products
from hashtune.training.activations import set_checkpointing
from hashtune.training.branch import Branch, check_trainable, read_branch
from hashtune.training.branch_fit import Candidate
from hashtune.training.documents import attend_as
from hashtune.training.fused.attach import attach
from hashtune.training.guard import check_weights
from hashtune.training.init_adapter import continue_from, read_adapter
from hashtune.training.model import (
    Trainee,
    build_trainee,
    quantization_config,
    seed_all,
    set_determinism,
)
from hashtune.training.own import check_base
from hashtune.training.phases import SetPhase, nobody
from hashtune.training.plan import Plan, check_plan
from hashtune.training.samples import Sampler, choose_prompts
from hashtune.training.soft_prompts import check_single_documents


@dataclass(frozen=True, slots=True)
class Start:
    """What training starts from. `adapter`: tensors of the one it continues from, if any;
    `recomputed`: how many blocks the backward computes again; `branch`: the state of another run
    that it begins with, if any; `tokens`: text -> id of the added ones, in the spec's order."""

    trainee: Trainee
    plan: Plan
    manifest: Manifest
    adapter: dict[str, Tensor]
    recomputed: int
    branch: Branch | None
    tokens: dict[str, int]


def begin(
    spec: Spec,
    plan: Plan,
    manifest: Manifest,
    *,
    root: Path,
    parts: Mapping[str, Any],
    code: Mapping[str, Any],
    phase: SetPhase = nobody,
) -> Start:
    """The base with the adapter that training starts from, random generators seeded, and the plan.

    Args:
        spec: the sections that train reads.
        plan: the packing plan.
        manifest: of the base.
        root: of the project.
        parts: what decides the run's bits, from identity_parts.
        code: the record of build/code/train.json.
        phase: is told when the base is there and its proofs begin.

    Raises:
        InputError: no GPU for a run on CUDA; settings do not fit the plan, the base, the state to
            branch from or each other.
    """
    set_determinism(spec.determinism)
    _check_device(spec)
    set_fp32_products("tf32" if spec.precision == "tf32" else "ieee")
    check_plan(plan, spec.schedule, spec.checkpoint)
    check_single_documents(spec.method, [*plan.rows, *plan.eval_rows])
    full = spec.method.type == FULL
    findings = full_findings(spec) if full else without_master(spec.precision, spec.optim)
    if findings:
        raise InputError(findings)
    branch = read_branch(Candidate(spec, plan, parts, code), root=root)
    added = _added(manifest, spec.tokenizer.added_tokens)
    adapter = read_adapter(spec.base_model.init_adapter, spec.method, added, root)
    tokens = sorted(added.values())
    load = partial(
        load_base,
        manifest,
        # bf16 would round a base that ships in fp32
        dtype="fp32" if full else stored_type(spec.precision),
        quantization_config=quantization_config(spec.quantization, spec.precision),
        rows=rows_needed(tokens),
    )
    base = load(device=spec.device)
    check_weights(base.named_parameters())
    if base.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # of what this process did before
    rows = [*plan.rows, *plan.eval_rows]
    attend_as(base, spec.batch.attention, rows, spec.kernels)
    trainee = build_trainee(
        base,
        spec.method,
        precision=spec.precision,
        seed=spec.init_seed,
        tokens=tokens,
        master_weights=spec.optim.master_weights,
        again=load,  # on the CPU: beside the trained weights a GPU may lack the room
    )
    if trainee.device.type == "cpu" and (findings := tf32_on_cpu(spec.precision)):
        raise InputError(findings)
    seed_all(spec.seed)  # what training draws does not depend on what the init drew
    phase("proof")
    packed = spec.batch.layout == "padding_free" or any(len(row.lengths) > 1 for row in rows)
    check_base(trainee, rows, packed=packed)
    adapter = continue_from(trainee.peft, adapter)
    if spec.kernels == "fused":
        trainee = replace(trainee, fused=attach(trainee.peft, precision=spec.precision))
    check_trainable(branch, trainee.parameters)
    recomputed = set_checkpointing(trainee, spec.activations)
    return Start(trainee, plan, manifest, adapter, recomputed, branch, added)


def _check_device(spec: Spec) -> None:
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise InputError(no_gpu())


def read_plan(pack: Path) -> Plan:
    """The packing plan that the stage pack wrote into this folder."""
    rows = [Row(**row) for row in writers.read_parquet(pack / "train.parquet")]
    steps = [step["rows"] for step in writers.read_parquet(pack / "steps.parquet")]
    return Plan(rows, steps, [Row(**row) for row in writers.read_parquet(pack / "eval.parquet")])


def sampler_of(spec: Spec, manifest: Manifest, plan: Plan) -> Sampler:
    """Loads the tokenizer only where something is to be sampled."""
    prompts = choose_prompts(plan.eval_rows, spec.checkpoint.samples)
    if not prompts or spec.method.type in SOFT:  # samples come from the base with its matrices
        return Sampler()
    tokenizer = load_tokenizer(manifest, spec.tokenizer.added_tokens)
    decode = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return Sampler(prompts, decode, frozenset(tokenizer.all_special_ids))


def _added(manifest: Manifest, texts: list[str]) -> dict[str, int]:
    """Text -> id of the added tokens; the tokenizer is loaded only where there are any."""
    if not texts:
        return {}
    tokenizer = load_tokenizer(manifest, texts)
    return {text: number for text in texts for number in token_ids(tokenizer, [text])}
