"""Combinations of method, quantization, precision, activations, attention, layout and packing: each
is accepted and trains a step on the toy, or is refused with fixes that lead to an accepted spec."""

import copy
import random
import re
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune.errors import Finding
from hashtune.records import Row
from hashtune.spec import methods
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import validate
from hashtune.spec.methods import SOFT
from hashtune.spec.pins import check_pins
from hashtune.spec.schema import Spec
from hashtune.store.loader import resolve
from hashtune.store.manifest import Manifest
from hashtune.training.optimizers import build_optimizer
from hashtune.training.plan import Plan
from hashtune.training.scaling import build_scaler
from hashtune.training.start import begin
from hashtune.training.step import train_step

ROOT = Path(__file__).parents[2]
Params = dict[str, Any]
GROUPS = ("method", "quantization", "activations")
AXES: dict[str, list[Any]] = {
    **{group: sorted(f.stem for f in (ROOT / "conf" / group).iterdir()) for group in GROUPS},
    "method.variant": [None, "dora"],  # None: the file's own
    "activations.offload": [False, True],  # True needs CUDA, so a CPU refuses it always
    "precision": ["fp32", "bf16", "fp16"],
    "batch.attention": ["mask", "documents"],
    "batch.layout": ["rows", "length_grouped", "padding_free"],
    "data.packing": [True, False],
}
DRAWN = 600
SETTING = re.compile(r"\b([a-z_]+(?:\.[a-z_]+)?)=([a-z0-9_]+)")
SCALER = {
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 2000,
    "_growth_tracker": 0,
}
VALUES: dict[str, Any] = {"true": True, "false": False, "null": None}
Case = tuple[Any, ...]


@pytest.fixture(scope="module")
def files() -> dict[tuple[str, str], Params]:
    """What each file of a group puts into params.yaml, its overrides of other groups included."""
    with chdir(ROOT):  # where conf/ is stamped
        toy = ["experiment=toy", "determinism.threads=1"]
        return {
            (group, name): parse(compose(ROOT, [*toy, f"{group}={name}"]))
            for group in GROUPS
            for name in AXES[group]
        }


def put(params: Params, key: str, value: Any, files: dict[tuple[str, str], Params]) -> None:
    """One setting, as -S takes it."""
    if key in GROUPS:
        params[key] = copy.deepcopy(files[key, value][key])
        if key == "method" and value == "qlora":  # the file brings it along
            params["quantization"] = copy.deepcopy(files[key, value]["quantization"])
        return
    *sections, name = key.split(".")
    target = params[sections[0]] if sections else params
    assert name in target, f"{key} is no field"
    target[name] = value


def spec_of(case: Case, files: dict[tuple[str, str], Params]) -> Params:
    params = copy.deepcopy(files["method", "lora"])
    for key, value in zip(AXES, case, strict=True):
        if key != "method.variant" or (value and params["method"]["variant"]):
            put(params, key, value, files)
    return params


def findings(params: Params) -> list[Finding]:
    return check_pins(validate(params), ROOT)


def accepted_by_fixes(params: Params, files: dict[tuple[str, str], Params]) -> bool:
    """Whether one alternative of each finding's fix, all together, gives an accepted spec."""
    told = findings(params)
    alternatives = [SETTING.findall(str(finding.fix)) for finding in told]
    for finding, found in zip(told, alternatives, strict=True):
        assert found, f"the fix names no setting: {finding}"
    for choice in product(*alternatives):
        changed = copy.deepcopy(params)
        for key, value in choice:
            put(changed, key, VALUES.get(value, value), files)
        if not findings(changed):
            return True
    return False


def drawn() -> list[Case]:
    return random.Random(0).sample(list(product(*AXES.values())), DRAWN)


def test_every_refusal_has_fixes_that_lead_to_an_accepted_spec(
    files: dict[tuple[str, str], Params],
) -> None:
    refused = [params for case in drawn() if findings(params := spec_of(case, files))]
    assert DRAWN / 4 < len(refused) < DRAWN
    stuck = [findings(params) for params in refused if not accepted_by_fixes(params, files)]
    assert not stuck, "\n".join(str(finding) for finding in stuck[0])


@pytest.mark.parametrize("fix", ["think again", "data.packing=true"])
def test_planted_fault_a_fix_that_leads_nowhere_is_seen(
    fix: str, files: dict[tuple[str, str], Params], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = copy.deepcopy(files["method", "prompt"])
    params["data"]["packing"] = True
    assert accepted_by_fixes(params, files)
    right = methods._finding
    monkeypatch.setattr(methods, "_finding", lambda field, message, _: right(field, message, fix))
    if fix == "think again":
        with pytest.raises(AssertionError, match="names no setting"):
            accepted_by_fixes(params, files)
    else:
        assert not accepted_by_fixes(params, files)


def covering(cases: list[Case]) -> Iterator[Case]:
    """Those with a value of method or quantization beside one of another field that none had."""
    seen: set[Any] = set()
    for case in cases:
        pairs = {
            (one, case[one], two, case[two])
            for one, two in combinations(range(len(case)), 2)
            if one < 2
        }
        if pairs - seen:
            seen |= pairs
            yield case


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    pinned = {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None, "sha256": None}
    return resolve(pinned, name="synthetic", say=lambda text: None)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_what_is_accepted_trains_a_step(
    files: dict[tuple[str, str], Params], manifest: Manifest, plan: Plan
) -> None:
    accepted = [case for case in drawn() if not findings(spec_of(case, files))]
    chosen = list(covering(accepted))
    for place, axis in enumerate(AXES):
        trained = {case[place] for case in chosen}
        assert trained == set(AXES[axis]) - ({True} if axis == "activations.offload" else set())
    for case in chosen:
        spec = validate(spec_of(case, files))
        parameters = steps_once(spec, plan, manifest)
        assert parameters > 0, case
    torch.set_deterministic_debug_mode("default")


def steps_once(spec: Spec, plan: Plan, manifest: Manifest) -> int:
    """How many tensors a step changed."""
    if not spec.data.packing or spec.method.type in SOFT:
        plan = Plan([alone(row) for row in plan.rows], plan.steps, [])
    begun = begin(spec, plan, manifest, root=ROOT, parts={}, code={})
    trainee = begun.trainee
    before = {name: p.detach().clone() for name, p in trainee.parameters.items()}
    step = train_step(
        trainee,
        build_optimizer(trainee.parameters, spec.optim),
        [plan.rows[number] for number in plan.steps[0]],
        micro=spec.batch.micro,
        lr=0.01,
        grad_clip=1.0,
        layout=spec.batch.layout,
        first=True,
        scaler=build_scaler(
            trainee, {"scale": 8.0, **SCALER} if spec.precision == "fp16" else None
        ),
    )
    assert step.applied
    return sum(not torch.equal(p, before[name]) for name, p in trainee.parameters.items())


def alone(row: Row) -> Row:
    return replace(row, example_ids=row.example_ids[:1], lengths=[sum(row.lengths)])
