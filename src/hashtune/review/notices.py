"""What a reviewer should stop at: combinations of changes that hide one another."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hashtune.lineage.lock import lookup
from hashtune.review.case import Case, is_number, listed
from hashtune.review.consequences import Group
from hashtune.review.training_notices import LAST, TRAINING

STRICTER_IS_HIGHER = (
    *("task_min", "task_metric_min_gain", "confidence", "min_task_items"),
    "min_regression_items",
)
FINDINGS = 10  # of the head's spec that are told
PINS = ("revision", "sha256", "repo", "file")


def notices(case: Case) -> list[str]:
    """Sentences, the gravest first."""
    return [sentence for rule in RULES for sentence in rule(case)]


def _diverged(case: Case) -> Iterator[str]:
    if case.diverged:
        yield (
            "The base is no ancestor of the head: what the base gained since they parted is told as"
            " if the head took it back. BASE...HEAD tells the head's own changes."
        )


def _invalid(case: Case) -> Iterator[str]:
    """Findings of the head's spec; their texts may hold values of the spec, so as code."""
    for finding in case.invalid[:FINDINGS]:
        text = " ".join(finding.message.split()).replace("`", "'")
        yield (
            f"The head's spec is invalid at `{finding.field}`: `{text}` [{finding.rule}]. The stage"
            " `spec` refuses it, so nothing can be rebuilt."
        )
    if len(case.invalid) > FINDINGS:
        more = len(case.invalid) - FINDINGS
        yield f"The head's spec has {more} more findings; `hashtune check` tells all."


def _not_rerun(case: Case) -> Iterator[str]:
    if case.no_lock:
        yield (
            "The head has no dvc.lock: nothing says that its reports are results of its spec. Run"
            " `dvc repro` and commit dvc.lock before judging."
        )
    if case.not_rerun:
        yield (
            "The recorded results are those of the base: dvc.lock still holds"
            f" {listed(case.not_rerun)} as it was. Run `dvc repro` (or `dvc repro --pull"
            " --allow-missing`) before judging."
        )


def _foreign(case: Case) -> Iterator[str]:
    for side, found in case.foreign.items():
        if found.reports:
            verb = "is" if len(found.reports) == 1 else "are"
            yield (
                f"In the {side}, {listed(found.reports)} {verb} not what dvc.lock records: edited"
                " by hand, or not committed together. Run `dvc repro` before judging."
            )
        if found.inputs:
            pairs = [f"{stage}: {name}" for stage, name in found.inputs]
            yield (
                f"In the {side}, dvc.lock records results of other inputs ({listed(pairs)}): its"
                " figures are not those of its spec. Run `dvc repro` before judging."
            )


def _safeguards(case: Case) -> Iterator[str]:
    yield from case.safeguards


def _stamp(case: Case) -> Iterator[str]:
    if case.stale_stamp:
        yield (
            "conf/ is not the one that params.yaml was composed from: `hashtune check` says whether"
            " a value differs, `hashtune compose` renews it."
        )


def _test_set(case: Case) -> Iterator[str]:
    if touched := case.touched("data.test"):
        yield (
            f"The test set changed ({listed(touched)}): scores before and after are of different"
            " items and do not compare."
        )


def _eval_and_metric(case: Case) -> Iterator[str]:
    sets = case.touched("data.test", "data.eval", "regression.suites")
    measures = case.touched("data.task", "evaluation", "eval_gate")
    if sets and measures:
        yield (
            f"What is measured on and how it is judged changed together ({listed(sets)}; "
            f"{listed(measures)}): change one at a time, or nothing can be compared."
        )


def _task(case: Case) -> Iterator[str]:
    if touched := case.touched("data.task"):
        before, after = (_fields(side) for side in (case.base, case.head))
        lost = [name for name in before if name not in after]
        verb = "is" if len(lost) == 1 else "are"
        yield (
            f"What scores answers changed ({listed(touched)}): scores before and after do not"
            f" compare.{f' {listed(lost)} {verb} judged no more.' if lost else ''}"
        )


def _fields(params: Mapping[str, Any]) -> list[Any]:
    found = lookup(params, "data.task.fields")
    return found if isinstance(found, list) else []


def _eval_set(case: Case) -> Iterator[str]:
    if touched := case.touched("data.eval"):
        yield (
            f"The eval set changed ({listed(touched)}): eval losses before and after do not"
            " compare, and another checkpoint may be chosen."
        )


def _leak(case: Case) -> Iterator[str]:
    if case.leaks:
        rows = "row asks" if case.leaks == 1 else "rows ask"
        yield (
            f"{case.leaks} added training {rows} what a test row asks: prepare refuses or drops"
            " them, or the test set measures memory."
        )


def _suites(case: Case) -> Iterator[str]:
    for role in case.touched("regression.suites"):
        rows = case.rows.get(role)
        if rows and (rows.removed or rows.changed):
            yield (
                f"{role} lost {len(rows.removed)} items and changed {len(rows.changed)}: a suite"
                " that loses its hard items passes more easily."
            )


def _margins(case: Case) -> Iterator[str]:
    for key in case.touched("eval_gate"):
        change = case.changes[key]
        name = key.removeprefix("eval_gate.")
        if not (is_number(change.old) and is_number(change.new)):
            continue
        rises = float(str(change.new)) > float(str(change.old))
        if rises != (name in STRICTER_IS_HIGHER):
            yield (
                f"The gate asks for less: `{key}` goes from {change.old} to {change.new}"
                f"{_with_training(case)}."
            )


def _with_training(case: Case) -> str:
    """What a looser gate came with, as the end of a sentence."""
    trained = {Group.TOKENS, Group.WEIGHTS}
    names = [c.key for c in case.changes.values() if c.groups[0] in trained]
    if not names:
        return ""
    return f", together with what is trained ({listed(names)}): judge that by the old gate first"


def _data_without_pin(case: Case) -> Iterator[str]:
    for role in case.rows:
        if not case.touched(role) or f"{role}.sha256" not in case.changes:
            rows = case.rows[role]
            if rows.before and rows.after and role.startswith(("data.", "regression.")):
                yield (
                    f"{rows.uri} changed and the pin `{role}.sha256` did not: `spec` refuses this."
                )


def _gone(case: Case) -> Iterator[str]:
    for role, rows in case.rows.items():
        if rows.gone:
            yield (
                f"`{rows.uri}` is gone and `{role}` still names it: `spec` refuses this. Restore"
                " it, or take it out of conf/."
            )


def _base(case: Case) -> Iterator[str]:
    moved = [key for key in case.touched("base_model") if key.rpartition(".")[2] in PINS]
    if moved:
        yield (
            f"The base changed ({listed(moved)}): adapters, baselines, memory and times of before"
            " are of other weights."
        )


def _libraries(case: Case) -> Iterator[str]:
    if case.libraries:
        yield (
            "requirements.lock changed: the same spec may give other bits"
            " (`hashtune verify --resume` shows whether a killed run still goes on exactly)."
        )


RULES: tuple[Callable[[Case], Iterator[str]], ...] = (
    *(_diverged, _invalid, _not_rerun, _foreign, _safeguards, _stamp, _data_without_pin, _gone),
    *(_leak, _test_set, _task, _eval_and_metric, _eval_set, _suites, _margins),
    *(*TRAINING, _base, _libraries, *LAST),
)
