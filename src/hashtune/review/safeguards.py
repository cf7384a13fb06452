"""What a change takes from the checks themselves, outside of the spec: what a stage reruns for, the
code that judges, the workflows that ask."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hashtune.review.case import listed
from hashtune.review.reruns import Pipeline, contents, modules, outputs

ANSWERING = ("baseline", "evaluate", "regress", "gate")
JUDGING = ("hashtune.evaluation.", *(f"hashtune.stages.{stage}" for stage in ANSWERING))
CHECKS = (".github/workflows", ".ci", ".pre-commit-config.yaml", ".dvc/config", ".dvcignore")


def safeguards(base: Pipeline, head: Pipeline) -> list[str]:
    """Sentences, the gravest first.

    Raises:
        InputError: syntax; code that cannot be read.
    """
    found = [*_judging(base, head), *_withdrawn(base.stages, head.stages)]
    return [*found, *_checks(base.root, head.root)]


def _judging(base: Pipeline, head: Pipeline) -> Iterator[str]:
    """By import closures, so that a comment is no other code."""
    if base.code == head.code:
        return
    changed: set[str] = set()
    for stage in ANSWERING:
        if stage in base.stages and stage in head.stages:
            old, new = modules(base, stage), modules(head, stage)
            changed |= {name for name in {*old, *new} if old.get(name) != new.get(name)}
    if names := sorted(name for name in changed if name.startswith(JUDGING)):
        yield (
            f"Code that answers, scores or judges changed ({listed(names)}): a score or a verdict"
            " may mean another thing after than before."
        )


def _withdrawn(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What dvc.yaml no longer reruns for."""
    if gone := [name for name in old if name not in new]:
        yield f"dvc.yaml lost the stages {listed(gone)}: what they proved is no longer asked."
    for name in [name for name in old if name in new]:
        lost = [key for key in _named(old[name], "params") if not _covered(key, new[name])]
        files = _named(new[name], "deps")
        if lost := [*lost, *(path for path in _named(old[name], "deps") if path not in files)]:
            yield (
                f"In dvc.yaml the stage `{name}` no longer depends on {listed(lost)}: a change"
                " there reruns it no more, and its recorded results are taken for current."
            )
        if missing := sorted({*outputs(old[name])} - {*outputs(new[name])}):
            yield f"In dvc.yaml the stage `{name}` no longer writes {listed(missing)} for DVC."


def _named(stage: Mapping[str, Any], kind: str) -> list[str]:
    return [name for name in stage.get(kind) or () if isinstance(name, str)]


def _covered(key: str, stage: Mapping[str, Any]) -> bool:
    """Whether the stage depends on the setting, by itself or by a section that holds it."""
    return any(key == name or key.startswith(f"{name}.") for name in _named(stage, "params"))


def _checks(base: Path, head: Path) -> Iterator[str]:
    old, new = _checking(base), _checking(head)
    if changed := sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
        yield (
            f"What checks a change was itself changed ({listed(changed)}): read that first, since"
            " this page and `hashtune check` come from there."
        )


def _checking(root: Path) -> dict[str, str]:
    """sha256 of each file at or below CHECKS."""
    return {
        f"{name}/{file}".rstrip("/"): sha256
        for name in CHECKS
        for file, sha256 in contents(root / name).items()
    }
