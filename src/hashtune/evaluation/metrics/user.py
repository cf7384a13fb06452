"""The user's own metric, run from the very bytes whose hash the spec pins.

    def score(answers: list[str], references: list[str]) -> list[float]

gives one score in [0, 1] per item, in their order. It must depend on nothing else: baseline and
evaluate call it with their answers, and once more with a constant answer.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from hashtune.errors import Finding, InputError
from hashtune.spec.places import place
from hashtune.spec.schema import UserMetric
from hashtune.spec.user_metric import FIELD, function_name, source_file, source_findings
from hashtune.writers import sha256_bytes

MODULE = "hashtune_user_metric"
SHOWN = 5


def user_scores(
    metric: UserMetric, answers: Sequence[str], references: Sequence[str], *, root: Path
) -> list[float]:
    """Scores in [0, 1], one per item.

    Args:
        metric: the dotted path below `root`, and the sha256 of its file.
        answers: of a model.
        references: as many.
        root: of the project.

    Raises:
        InputError: the file is not there, not the pinned one or not to be run (see
            spec.user_metric); it fails; what it returns is no list of that many scores.
    """
    file = source_file(metric)
    score = _function(metric, _source(metric, root), file)
    try:
        found = score(list(answers), list(references))
    except Exception as error:  # the user's code may raise anything
        message = f"{metric.path} failed: {type(error).__name__}: {error}"
        raise InputError(Finding("user-metric", message, file=file, field=FIELD)) from error
    if findings := _result_findings(found, len(references), file):
        raise InputError(findings)
    return [float(value) for value in found]


def _source(metric: UserMetric, root: Path) -> bytes:
    file = source_file(metric)
    path, there = place(root, file)
    if not there or not path.is_relative_to(root.resolve()):
        message = "leaves the project" if there else "does not exist"
        raise InputError(Finding("no-file", message, file=file, field=FIELD))
    source = path.read_bytes()
    if (found := sha256_bytes(source)) != metric.sha256:
        message = f"has sha256 {found}, the spec pins {metric.sha256}"
        fix = "restore the file, or pin the new content in conf/"
        raise InputError(Finding("pin-differs", message, file=file, field=FIELD, fix=fix))
    if findings := source_findings(metric, source, root):
        raise InputError(findings)
    return source


def _function(metric: UserMetric, source: bytes, file: str) -> Callable[..., Any]:
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses look their module up
    try:
        exec(compile(source, file, "exec"), module.__dict__)
    except Exception as error:  # the user's code may raise anything
        message = f"cannot be imported: {type(error).__name__}: {error}"
        raise InputError(Finding("user-metric", message, file=file, field=FIELD)) from error
    return cast("Callable[..., Any]", getattr(module, function_name(metric)))


def _result_findings(found: object, items: int, file: str) -> list[Finding]:
    if not isinstance(found, list) or len(found) != items:
        what = f"{len(found)} values" if isinstance(found, list) else type(found).__name__
        message = f"returned {what}, where a list of {items} scores is wanted"
        return [Finding("user-metric", message, file=file, field=FIELD)]
    wrong = [
        (index, value)
        for index, value in enumerate(found)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1
    ]
    return [
        Finding("user-metric", f"item {index}: {value!r} is no score in [0, 1]", file=file)
        for index, value in wrong[:SHOWN]
    ]
