"""Does a verdict, or a plan, belong to this state? Compares dvc.lock with params.yaml."""

import hashlib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from hashtune.errors import Finding, InputError
from hashtune.writers import read_json

PLAN_STAGES = ("prepare", "tokenize", "pack")
HERE = Path()
STEP_PARAMS = (  # of pack; they say which rows a step sees and how many steps there are
    *("duration.epochs", "duration.max_steps", "data_seed"),
    *("batch.micro", "batch.grad_accum", "batch.world_size"),
)


def stale(lock_text: str, params: Mapping[str, Any], gate: Path) -> list[Finding]:
    """Findings when dvc.lock was made with other params, gate.json is not what DVC recorded, or a
    stage has run since without those that build on it, as after `dvc repro train`."""
    stages = read_stages(lock_text)
    try:
        recorded = {out["path"]: out["md5"] for out in stages["gate"]["outs"]}
    except (TypeError, KeyError) as error:
        raise _broken("is cut or damaged, or the gate never ran") from error
    findings = []
    if _md5(gate) != recorded.get(gate.as_posix()):
        findings.append(
            Finding(
                "foreign-verdict", "is not the file DVC recorded", file=str(gate), fix="dvc repro"
            )
        )
    try:
        findings += _outrun(stages)
    except (TypeError, KeyError, AttributeError) as error:
        raise _broken("is cut or damaged") from error
    return findings + _other_params(stages, params, rule="stale-verdict", fix="dvc repro")


def _outrun(stages: Mapping[str, Any]) -> list[Finding]:
    """A finding for each input of a stage that its maker has made anew since."""
    made = {out["path"]: (name, out) for name in stages for out in stages[name].get("outs", ())}
    findings = []
    for name, stage in stages.items():
        for dep in stage.get("deps", ()):
            maker, out = made.get(dep["path"], (name, dep))
            if out.get("md5") != dep.get("md5"):
                message = f"stage {name} has not run since stage {maker} made another {dep['path']}"
                findings.append(Finding("stale-verdict", message, file="dvc.lock", fix="dvc repro"))
    return findings


def other_plan(lock_text: str, params: Mapping[str, Any]) -> list[Finding]:
    """Findings when build/pack was made with other params, by what dvc.lock says of the stages."""
    stages = read_stages(lock_text)
    if "pack" not in stages:
        return [Finding("no-plan", "has no stage pack", file="dvc.lock", fix="dvc repro pack")]
    made = {name: stages[name] for name in PLAN_STAGES if name in stages}
    return _other_params(made, params, rule="other-plan", fix="dvc repro pack")


def stale_plan(
    lock_text: str, params: Mapping[str, Any], report: Path, *, root: Path = HERE
) -> list[Finding]:
    """Findings when reports/plan.json (`report`, relative to `root`) is not what DVC recorded, or
    was made with other params."""
    stages = read_stages(lock_text)
    fix = "dvc repro plan"
    if "plan" not in stages:
        return [Finding("no-plan", "has no stage plan", file="dvc.lock", fix=fix)]
    recorded = {out.get("path"): out.get("md5") for out in stages["plan"].get("outs", [])}
    findings = []
    found = root / report
    if not found.is_file() or recorded.get(report.as_posix()) != _md5(found):
        message = "is not the file DVC recorded"
        findings.append(Finding("foreign-plan", message, file=str(report), fix=fix))
    made = {name: stages[name] for name in (*PLAN_STAGES, "plan") if name in stages}
    return findings + _other_params(made, params, rule="stale-plan", fix=fix)


def packed_rows(
    lock_text: str, params: Mapping[str, Any], report: Path, *, root: Path = HERE
) -> int | None:
    """Rows of the training split as these params pack them; None where that is not known.

    Known from the report of pack (`report`, relative to `root`), if DVC recorded it and nothing
    that decides rows has changed since. The length of the run and the size of a step may have.
    """
    stages = read_stages(lock_text)
    try:
        recorded = {out["path"]: out["md5"] for out in stages["pack"]["outs"]}
        same = same_rows(stages, params)
    except (TypeError, KeyError):
        return None
    found = root / report
    if not found.is_file() or recorded.get(report.as_posix()) != _md5(found) or not same:
        return None
    return int(read_json(found)["train"]["rows"])


def same_rows(stages: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether nothing in these params gives other rows than the recorded stages packed. The length
    of the run and the size of a step may differ.

    Raises:
        KeyError, TypeError: a stage up to pack was not recorded.
    """
    made = {name: stages[name] for name in PLAN_STAGES}
    kept = dict(made["pack"]["params"]["params.yaml"])
    for key in STEP_PARAMS:
        kept.pop(key, None)
    made["pack"] = {"params": {"params.yaml": kept}}
    return not any(changed_params(made, params))


def _md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def read_stages(lock_text: str) -> dict[str, Any]:
    """The `stages` of a dvc.lock; InputError when the file is cut or damaged."""
    return deepcopy(_parsed(lock_text))


@lru_cache(maxsize=8)
def _parsed(lock_text: str) -> dict[str, Any]:
    """Parsed once: a review asks six times what two locks say, and parsing was most of its time."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        # the loader of params.yaml: PyYAML would read DVC's 1e-08 as a text
        lock: Any = OmegaConf.to_container(OmegaConf.create(lock_text))
        return dict(lock["stages"])
    except (yaml.YAMLError, OmegaConfBaseException, TypeError, KeyError, ValueError) as error:
        raise _broken("is cut or damaged") from error


def _broken(message: str) -> InputError:
    fix = "git checkout dvc.lock && dvc repro"
    return InputError(Finding("broken-lock", message, file="dvc.lock", fix=fix))


def _other_params(
    stages: Mapping[str, Any], params: Mapping[str, Any], *, rule: str, fix: str
) -> list[Finding]:
    """A finding for each recorded parameter whose value is another one now."""
    return [
        Finding(
            rule,
            f"stage {name} ran with {value!r}, params.yaml says {lookup(params, key)!r}",
            file="params.yaml",
            field=key,
            fix=fix,
        )
        for name, key, value in changed_params(stages, params)
    ]


def changed_params(
    stages: Mapping[str, Any], params: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """(stage, key, recorded value) of each recorded parameter whose value is another one now."""
    for name, stage in stages.items():
        for key, value in stage.get("params", {}).get("params.yaml", {}).items():
            if lookup(params, key) != value:
                yield name, key, value


def lookup(params: Mapping[str, Any], dotted: str) -> object:
    """The value at a dotted key, or None."""
    value: Any = params
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
