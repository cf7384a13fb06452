"""What a reviewer should stop at: combinations of changes that hide one another."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hashtune.errors import Finding
from hashtune.review.consequences import Group
from hashtune.review.recorded import Foreign
from hashtune.review.rows import RowDifference
from hashtune.review.settings import Change, effective_batch

STRICTER_IS_HIGHER = (
    *("task_min", "task_metric_min_gain", "confidence", "min_task_items"),
    "min_regression_items",
)
FINDINGS = 10  # of the head's spec that are told
PINS = ("revision", "sha256", "repo", "file")


@dataclass(frozen=True, slots=True)
class Case:
    """A change as the notices see it."""

    changes: Mapping[str, Change]
    rows: Mapping[str, RowDifference]
    base: Mapping[str, Any]
    head: Mapping[str, Any]
    not_rerun: list[str] = field(default_factory=list)
    no_lock: bool = False
    stale_stamp: bool = False
    libraries: bool = False
    leaks: int = 0
    invalid: Sequence[Finding] = ()
    diverged: bool = False
    foreign: Mapping[str, Foreign] = field(default_factory=dict)  # "head" and "base"
    safeguards: Sequence[str] = ()

    def touched(self, *prefixes: str) -> list[str]:
        """Changed settings and data roles at or below one of the dotted prefixes, without those
        that change names only."""
        named = [name for name, change in self.changes.items() if change.groups != (Group.NAMES,)]
        names = [*named, *(role for role in self.rows if role not in self.changes)]
        return [
            name
            for name in names
            if any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
        ]


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
            f" {_list(case.not_rerun)} as it was. Run `dvc repro` (or `dvc repro --pull"
            " --allow-missing`) before judging."
        )


def _foreign(case: Case) -> Iterator[str]:
    for side, found in case.foreign.items():
        if found.reports:
            verb = "is" if len(found.reports) == 1 else "are"
            yield (
                f"In the {side}, {_list(found.reports)} {verb} not what dvc.lock records: edited by"
                " hand, or not committed together. Run `dvc repro` before judging."
            )
        if found.inputs:
            pairs = [f"{stage}: {name}" for stage, name in found.inputs]
            yield (
                f"In the {side}, dvc.lock records results of other inputs ({_list(pairs)}): its"
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
            f"The test set changed ({_list(touched)}): scores before and after are of different"
            " items and do not compare."
        )


def _eval_and_metric(case: Case) -> Iterator[str]:
    sets = case.touched("data.test", "data.eval", "regression.suites")
    measures = case.touched("data.task", "evaluation", "eval_gate")
    if sets and measures:
        yield (
            f"What is measured on and how it is judged changed together ({_list(sets)}; "
            f"{_list(measures)}): change one at a time, or nothing can be compared."
        )


def _eval_set(case: Case) -> Iterator[str]:
    if touched := case.touched("data.eval"):
        yield (
            f"The eval set changed ({_list(touched)}): eval losses before and after do not compare,"
            " and another checkpoint may be chosen."
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
        if not (_number(change.old) and _number(change.new)):
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
    return f", together with what is trained ({_list(names)}): judge that by the old gate first"


def _rate_and_batch(case: Case) -> Iterator[str]:
    before, after = effective_batch(case.base), effective_batch(case.head)
    rate = "optim.lr" in case.changes
    if before == after or before is None or after is None:
        return
    if rate:
        yield (
            f"The learning rate changed together with the effective batch ({before} to {after} rows"
            " a step): which of the two did it cannot be told."
        )
    else:
        yield (
            f"The effective batch changed ({before} to {after} rows a step) and the learning rate"
            " did not: what suited the old batch may not suit this one."
        )


def _rows_hold(case: Case) -> Iterator[str]:
    """Rows per step stay the same, and what a row holds does not."""
    if touched := case.touched("data.packing", "data.max_seq_len"):
        yield (
            f"A row holds other documents ({_list(touched)}): documents and trained tokens per step"
            " change though rows per step may not, which acts as another batch size; with"
            " `duration.max_steps` it also decides how much of the data is seen."
        )


def _scale(case: Case) -> Iterator[str]:
    """PEFT multiplies an update by alpha / r, rslora by alpha / sqrt(r)."""
    if case.touched("method.r", "method.alpha", "method.variant"):
        before, after = (_lora_scale(side) for side in (case.base, case.head))
        if before != after and before is not None and after is not None:
            yield (
                f"The scale of the LoRA update goes from {before:.4g} to {after:.4g} (alpha over"
                " rank; of rslora over its root): that works like another learning rate."
            )


def _lora_scale(params: Mapping[str, Any]) -> float | None:
    method = params.get("method")
    found = method if isinstance(method, Mapping) else {}
    rank, alpha = found.get("r"), found.get("alpha")
    if not (_number(rank) and _number(alpha)) or float(str(rank)) <= 0:
        return None
    size = float(str(rank))
    return float(str(alpha)) / (math.sqrt(size) if found.get("variant") == "rslora" else size)


def _cut(case: Case) -> Iterator[str]:
    duration = case.head.get("duration")
    most = duration.get("max_steps") if isinstance(duration, Mapping) else None
    if (
        most is not None
        and "duration.epochs" in case.changes
        and ("duration.max_steps" not in case.changes)
    ):
        yield (
            f"`duration.epochs` changed, and `duration.max_steps` ({most}) cuts the run before and"
            " after: where an epoch has as many steps, nothing is trained longer or shorter."
        )


def _seed_alone(case: Case) -> Iterator[str]:
    seeds = {"seed", "data_seed", "init_seed"}
    changed = {key for key in case.changes if key != "run.experiment"}
    if changed and changed <= seeds and not case.rows:
        yield "Only seeds changed: a difference in the figures is seed noise, not progress."


def _determinism(case: Case) -> Iterator[str]:
    change = case.changes.get("determinism.mode")
    if change and change.new == "off":
        yield "determinism.mode is off: the same inputs may give other bits, and verify may differ."


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
            f"The base changed ({_list(moved)}): adapters, baselines, memory and times of before"
            " are of other weights."
        )


def _libraries(case: Case) -> Iterator[str]:
    if case.libraries:
        yield (
            "requirements.lock changed: the same spec may give other bits"
            " (`hashtune verify --resume` shows whether a killed run still goes on exactly)."
        )


RULES: tuple[Callable[[Case], Iterator[str]], ...] = (
    *(
        _diverged,
        _invalid,
        _not_rerun,
        _foreign,
        _safeguards,
        _stamp,
        _data_without_pin,
        _gone,
        _leak,
        _test_set,
        _eval_and_metric,
        _eval_set,
        _suites,
    ),
    *(
        _margins,
        _rate_and_batch,
        _rows_hold,
        _scale,
        _cut,
        _base,
        _determinism,
        _libraries,
        _seed_alone,
    ),
)


def _list(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    rest = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
    return ", ".join(shown[:4]) + rest


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
