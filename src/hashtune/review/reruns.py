"""Which stages a change makes rerun, and why.

Read from dvc.yaml as DVC reads it: a stage reruns when its command, a param or a tracked file that
it depends on changed; a stage below it reruns if the outputs come out otherwise. Two outputs never
change by design (build/spec/valid, build/plan/fits), and code counts by the import closure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.lineage.code import closure, read_lock
from hashtune.lineage.lock import lookup
from hashtune.spec.load import read_params
from hashtune.writers import sha256_file

NEVER_CHANGE = ("build/spec/valid", "build/plan/fits")
CODE = "build/code"
DVC = "dvc.yaml"
LOCK = "requirements.lock"


@dataclass(slots=True)
class Rerun:
    """A stage that reruns: `reasons` of its own, `after` the stages whose outputs it takes."""

    stage: str
    reasons: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    seconds: float | None = None

    @property
    def certain(self) -> bool:
        """Whether it reruns whatever the stages above give."""
        return bool(self.reasons)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A revision's folder with its stages, params, locked libraries and the sha256 of each file of
    src/, which every stage is asked about."""

    root: Path
    stages: Mapping[str, Any]
    params: Mapping[str, Any]
    lock: Mapping[str, str]
    code: Mapping[str, str]


def read_pipeline(root: Path) -> Pipeline:
    """dvc.yaml, params.yaml and requirements.lock of a folder; InputError as their readers."""
    stages = _stages(_text(root, DVC), file=f"{root}/{DVC}")
    libraries = read_lock(_text(root, LOCK), file=f"{root}/{LOCK}")
    params = read_params(root / "params.yaml")
    return Pipeline(root, stages, params, libraries, contents(root / "src"))


def _text(root: Path, name: str) -> str:
    try:
        return (root / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        message = "is missing: no revision of a hashtune project"
        raise InputError(Finding("no-pipeline", message, file=f"{root}/{name}")) from error
    except UnicodeDecodeError as error:
        raise InputError(Finding("not-utf8", str(error), file=f"{root}/{name}")) from error


def _stages(text: str, *, file: str) -> Mapping[str, Any]:
    """The stages of a dvc.yaml by their names; each is a mapping with a command."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(Finding("yaml", " ".join(str(error).split()), file=file)) from error
    stages = found.get("stages") if isinstance(found, dict) else None
    sound = isinstance(stages, dict) and all(
        isinstance(stage, dict) and "cmd" in stage for stage in stages.values()
    )
    if not sound:
        raise InputError(Finding("no-pipeline", "has no stages with commands", file=file))
    return dict(stages or {})


def reruns(base: Pipeline, head: Pipeline) -> list[Rerun]:
    """The stages of `head` that rerun after `base`, in the order of dvc.yaml."""
    makers = {path: name for name, stage in head.stages.items() for path in outputs(stage)}
    found: dict[str, Rerun] = {}
    for name, stage in head.stages.items():
        rerun = Rerun(name, list(_reasons(name, base, head, makers)))
        for path in stage.get("deps", ()):
            maker = makers.get(path)
            if maker in found and maker != "code" and path not in NEVER_CHANGE:
                rerun.after += [maker] if maker not in rerun.after else []
        if rerun.reasons or rerun.after:
            found[name] = rerun
    return list(found.values())


def outputs(stage: Mapping[str, Any]) -> Iterator[str]:
    """Paths of a stage's outs, metrics and plots."""
    for kind in ("outs", "metrics", "plots"):
        for entry in stage.get(kind, ()):
            yield from [entry] if isinstance(entry, str) else entry


def _reasons(name: str, base: Pipeline, head: Pipeline, makers: Mapping[str, str]) -> Iterator[str]:
    stage, old = head.stages[name], base.stages.get(name)
    if old is None:
        yield "is new"
        return
    if old["cmd"] != stage["cmd"]:
        yield "its command"
    if {*outputs(stage)} - {*outputs(old)}:
        yield "its outputs"
    for key in stage.get("params", ()):
        if lookup(base.params, key) != lookup(head.params, key):
            yield f"`{key}`"
    for path in stage.get("deps", ()):
        if path in (CODE, f"{CODE}/{name}.json"):
            yield from _code(list(head.stages) if path == CODE else [name], base, head)
        elif path == "build/spec/spec.json":
            yield from ["the spec"] if base.params != head.params else []
        elif path not in makers and not any(out.startswith(f"{path}/") for out in makers):
            yield from (
                [f"{path}"] if contents(base.root / path) != contents(head.root / path) else []
            )
    known = old.get("deps", ())
    yield from (f"`{path}` is new" for path in stage.get("deps", ()) if path not in known)


def _code(names: list[str], base: Pipeline, head: Pipeline) -> Iterator[str]:
    changed: set[str] = set()
    if base.code != head.code:
        for name in names:
            old, new = modules(base, name), modules(head, name)
            changed |= {module for module in {*old, *new} if old.get(module) != new.get(module)}
    if changed:
        first, *rest = sorted(changed)
        yield f"code: {first}{f' and {len(rest)} more modules' if rest else ''}"
    if base.lock != head.lock:
        names = [
            n for n in sorted({*base.lock, *head.lock}) if base.lock.get(n) != head.lock.get(n)
        ]
        yield f"libraries, if it uses them: {', '.join(names[:5])}"


def modules(pipeline: Pipeline, stage: str) -> dict[str, str]:
    """The first-party modules of a stage with the hashes of their ASTs; InputError (syntax)."""
    try:
        return closure(f"hashtune.stages.{stage}", pipeline.root / "src").modules
    except SyntaxError as error:
        file = Path(error.filename or "src")
        shown = file.relative_to(pipeline.root) if file.is_relative_to(pipeline.root) else file
        message = f"in the {pipeline.root.name}: {error.msg}"
        raise InputError(Finding("syntax", message, str(shown), line=error.lineno)) from error


def contents(path: Path) -> dict[str, str]:
    """Files below a path with their sha256; a file is itself, a missing path is empty."""
    if path.is_file():
        return {"": sha256_file(path)}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): sha256_file(file) for file in files}


def not_rerun(
    found: list[Rerun], base_lock: Mapping[str, Any], head_lock: Mapping[str, Any]
) -> list[str]:
    """Stages that must rerun and whose entry in dvc.lock is still that of the base: their recorded
    results are not those of the head."""
    left = []
    for rerun in found:
        old, new = base_lock.get(rerun.stage), head_lock.get(rerun.stage)
        if rerun.certain and (new is None or new == old) and old is not None:
            left.append(rerun.stage)
    return left
