"""What a training run starts from: the base, the adapter on it, the packing plan."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from hashtune import writers
from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.methods import FULL, SOFT, full_findings
from hashtune.spec.schema import Spec
from hashtune.store.added_tokens import rows_needed, token_ids
from hashtune.store.loader import load_base, load_tokenizer
from hashtune.store.manifest import Manifest
from hashtune.training.activations import set_checkpointing
from hashtune.training.documents import attend_as
from hashtune.training.init_adapter import continue_from, read_adapter
from hashtune.training.model import Trainee, build_trainee, quantization_config, set_determinism
from hashtune.training.plan import Plan, check_plan
from hashtune.training.samples import Sampler, choose_prompts
from hashtune.training.soft_prompts import check_single_documents


@dataclass(frozen=True, slots=True)
class Start:
    """What training starts from. `adapter`: tensors of the one it continues from, if any;
    `recomputed`: how many blocks the backward computes again."""

    trainee: Trainee
    plan: Plan
    manifest: Manifest
    adapter: dict[str, Tensor]
    recomputed: int


def begin(spec: Spec, plan: Plan, manifest: Manifest, *, root: Path) -> Start:
    """The base with the adapter that training starts from, random generators seeded, and the plan.

    Raises InputError for settings that do not fit the plan, the base or each other.
    """
    set_determinism(spec.determinism)
    check_plan(plan, spec.schedule, spec.checkpoint)
    check_single_documents(spec.method, [*plan.rows, *plan.eval_rows])
    full = spec.method.type == FULL
    if full and (found := full_findings(spec.quantization, spec.base_model.init_adapter)):
        raise InputError(found)
    added = spec.tokenizer.added_tokens
    adapter = read_adapter(spec.base_model.init_adapter, spec.method, added, root)
    tokens = _token_ids(manifest, added)
    load = partial(
        load_base,
        manifest,
        dtype="fp32" if full else spec.precision,  # bf16 would round a base that ships in fp32
        quantization_config=quantization_config(spec.quantization, spec.precision),
        rows=rows_needed(tokens),
    )
    base = load()
    attend_as(base, spec.batch.attention, [*plan.rows, *plan.eval_rows])
    trainee = build_trainee(
        base, spec.method, precision=spec.precision, seed=spec.seed, tokens=tokens, again=load
    )
    continue_from(trainee.peft, adapter)
    recomputed = set_checkpointing(trainee, spec.activations)
    return Start(trainee, plan, manifest, adapter, recomputed)


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


def _token_ids(manifest: Manifest, texts: list[str]) -> list[int]:
    """Ids of the added tokens; the tokenizer is loaded only where there are any."""
    return token_ids(load_tokenizer(manifest, texts), texts) if texts else []
