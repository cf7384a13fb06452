"""Can this commit be rebuilt? Runs it again from Git and data hashes, and compares every output."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.lineage import rebuild
from hashtune.lineage.causes import Cause, Traces, likely_cause, refusal
from hashtune.lineage.differences import first_difference, first_step
from hashtune.lineage.environment import PLACES, variables_read
from hashtune.lineage.lock import changed_params, lookup, read_stages
from hashtune.lineage.verdict import EQUAL, NOT_RUN, StageVerdict, compare, other_inputs
from hashtune.spec.load import read_params

IDENTICAL, DIFFERS = "identical", "differs"
STEPS = "steps"  # why a rebuild was stopped: so many were asked for
CURVES = Path("build/train/curves")


@dataclass(frozen=True)
class Pair:
    """A revision as it was recorded and as it was rebuilt: the clones, their locks' stages and what
    ran in the second."""

    old: Path
    new: Path
    recorded: Mapping[str, Any]
    rebuilt: Mapping[str, Any]
    run: rebuild.Run

    @property
    def ended(self) -> list[str]:
        """Stages that ran to their end."""
        return self.run.executed if self.run.code == 0 else self.run.executed[:-1]


def verify(
    root: Path, commit: str, folder: Path, *, steps: int | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """The report on a commit: commit, entry_sha256, verdict, executed, training, stages,
    first_difference and cause; no path and no time is in it.

    Args:
        root: the repository; only its commits, its DVC cache and its remotes are read.
        commit: full hash.
        folder: an empty folder; the clones and the store go there.
        steps: stop training after so many steps and compare the curves up to there; None: all.
        say: gets each line of what runs.

    Raises:
        InputError: the commit has no dvc.lock, or its data are not to be had.
    """
    old, new, cache = folder / "recorded", folder / "rebuilt", rebuild.cache_of(root)
    rebuild.clone(root, commit, old, cache=cache)
    rebuild.clone(root, commit, new, cache=None)
    recorded = _lock(old)
    order = list(yaml.safe_load((new / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
    rebuild.fetch_data(new, cache)

    def enough(run: rebuild.Run, line: str) -> str | None:
        if steps is not None and run.step >= steps:
            return STEPS
        if not rebuild.STAGE.search(line):
            return None
        ended = compare(recorded, _lock(new), order, executed=run.executed[:-1])
        return DIFFERS if _first_other(ended) else None

    run = rebuild.execute(new, folder / "home", "--force", say=say, enough=enough)
    pair = Pair(old, new, recorded, _lock(new), run)
    stages = compare(recorded, pair.rebuilt, order, executed=pair.ended)
    release = old / "reports/release.json"
    return {
        "commit": commit,
        "entry_sha256": writers.read_json(release)["entry_sha256"] if release.is_file() else None,
        "executed": pair.ended,
        "training": {"began": run.begun, "steps": run.step, "of": run.steps},
        "stages": [asdict(stage) for stage in _with_steps(stages, run)],
        **_judge(pair, stages),
    }


def _with_steps(stages: Sequence[StageVerdict], run: rebuild.Run) -> list[StageVerdict]:
    """The stages; of a training that was stopped after enough steps, how far it was compared."""
    if run.stopped != STEPS:
        return list(stages)
    return [
        replace(stage, verdict=f"compared up to step {run.step}")
        if stage.stage == "train"
        else stage
        for stage in stages
    ]


def _lock(folder: Path) -> dict[str, Any]:
    file = folder / "dvc.lock"
    if not file.is_file():
        fix = "dvc repro, then commit dvc.lock and reports/"
        raise InputError(Finding("no-lock", "is not in this commit", file="dvc.lock", fix=fix))
    return read_stages(file.read_text(encoding="utf-8"))


def _judge(pair: Pair, stages: Sequence[StageVerdict]) -> dict[str, Any]:
    """verdict, first_difference and cause."""
    if other := _first_other(stages):
        return _stage_differs(pair, other)
    if pair.run.stopped == STEPS:
        step = first_step(_recorded_curves(pair), pair.new / CURVES, last=pair.run.step)
        return _train_differs(pair, step) if step else _same()
    if pair.run.code != 0:
        stage = pair.run.executed[-1] if pair.run.executed else None
        return _differs({"stage": stage}, refusal(pair.run.tail))
    if changed := rebuild.changed_reports(pair.new):
        cause = Cause("data", "Git holds another file than its stage writes: edited by hand?")
        return _differs({"stage": None, "output": changed[0]}, cause)
    return _same()


def _first_other(stages: Sequence[StageVerdict]) -> StageVerdict | None:
    return next((stage for stage in stages if stage.verdict not in (EQUAL, NOT_RUN)), None)


def _same() -> dict[str, Any]:
    return {"verdict": IDENTICAL, "first_difference": None, "cause": None}


def _differs(where: Mapping[str, Any], cause: Cause) -> dict[str, Any]:
    return {"verdict": DIFFERS, "first_difference": dict(where), "cause": asdict(cause)}


def _stage_differs(pair: Pair, stage: StageVerdict) -> dict[str, Any]:
    """The first output of this stage that differs, and why."""
    rebuild.fetch_outputs(pair.old, stage.stage)
    where: dict[str, Any] = {"stage": stage.stage}
    if stage.outputs:
        output = stage.outputs[0]
        where |= {"output": output, "difference": _words(pair.old / output, pair.new / output)}
    if stage.stage == "train" and (pair.old / CURVES).is_dir():
        where["step"] = first_step(pair.old / CURVES, pair.new / CURVES)
    return _differs(where, likely_cause(_traces(pair, stage.stage)))


def _words(old: Path, new: Path) -> str:
    if not old.exists():
        return "the recorded one is neither in Git, nor in the DVC cache, nor in a remote"
    return first_difference(old, new) or "the recorded file is not what dvc.lock says of it"


def _train_differs(pair: Pair, step: int) -> dict[str, Any]:
    where = {"stage": "train", "output": CURVES.as_posix(), "step": step}
    return _differs(where, likely_cause(_traces(pair, "train")))


def _recorded_curves(pair: Pair) -> Path:
    rebuild.fetch_outputs(pair.old, "train")
    if not (pair.old / CURVES).is_dir():
        message = "the recorded curves are neither in the DVC cache nor in a remote"
        fix = "dvc pull train, or verify without --steps: dvc.lock has the hash of all steps only"
        raise InputError(Finding("no-data", message, file=CURVES.as_posix(), fix=fix))
    return pair.old / CURVES


def _traces(pair: Pair, stage: str) -> Traces:
    return Traces(
        stage=stage,
        inputs=_inputs(pair, stage),
        code=_code(pair, stage),
        machines=(_machine(pair.old, stage), _machine(pair.new, stage)),
        variables=_variables(pair.new, stage),
    )


def _inputs(pair: Pair, stage: str) -> list[str]:
    """Other inputs in words. `spec` reads the whole params.yaml: there, those of all stages."""
    if stage != "spec":
        return other_inputs(pair.recorded.get(stage, {}), pair.rebuilt.get(stage, {}))
    params = read_params(pair.new / "params.yaml")
    changed = {key: value for _, key, value in changed_params(pair.recorded, params)}
    return [
        f"{key} was {value!r}, params.yaml says {lookup(params, key)!r}"
        for key, value in sorted(changed.items())
    ] or other_inputs(pair.recorded.get(stage, {}), pair.rebuilt.get(stage, {}))


def _code(pair: Pair, stage: str) -> tuple[Any, Any] | None:
    """What `code` recorded for the stage, or for all stages where `code` itself differs."""
    if stage != "code":
        return None
    pairs = [
        (pair.old / path, pair.new / path)
        for path in sorted(out["path"] for out in pair.rebuilt["code"]["outs"])
    ]
    return next(
        (
            (writers.read_json(old), writers.read_json(new))
            for old, new in pairs
            if old.is_file() and old.read_bytes() != new.read_bytes()
        ),
        None,
    )


def _machine(folder: Path, stage: str) -> Mapping[str, Any]:
    """What the machine measured, if it belongs to the output that lies there."""
    file = folder / "reports/machine" / f"{stage}.json"
    if not file.is_file():
        return {}
    measured = dict(writers.read_json(file))
    output = folder / measured["output"]
    same = output.is_file() and writers.sha256_file(output) == measured["output_sha256"]
    return measured if same else {}


def _variables(folder: Path, stage: str) -> dict[str, str]:
    record = folder / "build/code" / f"{stage}.json"
    if not record.is_file():
        return {}
    found = variables_read(writers.read_json(record)["modules"], folder / "src")
    return {name: module for name, module in found.items() if name not in PLACES}
