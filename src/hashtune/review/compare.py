"""Two folders of two revisions in, one review out."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hashtune.errors import InputError
from hashtune.lineage.lock import read_stages, stale_plan
from hashtune.review import figures
from hashtune.review.case import Case
from hashtune.review.notices import notices
from hashtune.review.page import Review
from hashtune.review.recorded import Foreign, foreign
from hashtune.review.reruns import Pipeline, Rerun, not_rerun, read_pipeline, reruns
from hashtune.review.revisions import Span
from hashtune.review.rows import leaks, row_differences
from hashtune.review.safeguards import safeguards
from hashtune.review.seconds import cost, with_seconds
from hashtune.review.settings import changes, effective_batch
from hashtune.review.validity import spec_findings
from hydra_plugins.hashtune_conf import conf_sha256

LOCK, CODE = "dvc.lock", "code"
# a stage that must rerun and has not: then the report of plan is not the head's
PLANNED_BY = {"base", "replay", "prepare", "tokenize", "pack", "plan"}
NOT_PLANNED = "No plan is recorded for both revisions."


def compare(span: Span, base: Path, head: Path) -> Review:
    """What `head` changes against `base`.

    Raises:
        InputError: a params.yaml, lock or dvc.yaml that cannot be read.
    """
    old, new = _pipeline(base, span.base), _pipeline(head, span.head)
    changed = changes(old.params, new.params)
    rows = row_differences(base, head, old.params, new.params)
    locks = [_lock(root, commit) for root, commit in ((base, span.base), (head, span.head))]
    lock = locks[1]
    first = [Rerun(stage, ["dvc.lock is missing"]) for stage in new.stages]
    found = with_seconds(reruns(old, new) if lock else first, old, new)
    left = not_rerun(found, locks[0], lock) if lock else []
    if left == [CODE]:  # no other stage reruns, so it writes the same again: the results hold
        left = []
    seconds, price, currency = cost(found, new)
    certain, _, _ = cost([rerun for rerun in found if rerun.certain], new)
    doubts = _doubts(span, (old, new), locks, left)
    planned = not PLANNED_BY & {*left} and all(map(_has_plan, (old, new)))
    memory = figures.memory(base, head)  # read, and refused when broken, in any case
    verdict, rules = figures.gate(base, head)
    case = Case(
        changes={change.key: change for change in changed},
        rows={row.role: row for row in rows},
        base=old.params,
        head=new.params,
        not_rerun=left,
        no_lock=not lock,
        stale_stamp=new.params.get("conf_sha256") != conf_sha256(head),
        libraries=old.lock != new.lock,
        leaks=leaks(head, rows, new.params),
        invalid=spec_findings(new.params),
        diverged=span.diverged,
        foreign=doubts,
        safeguards=safeguards(old, new),
    )
    return Review(
        base=span.base,
        head=span.head,
        notices=notices(case),
        changes=changed,
        batch=(effective_batch(old.params), effective_batch(new.params)),
        reruns=found,
        certain=certain,
        seconds=seconds,
        price=price,
        currency=currency,
        verdict=verdict,
        rules=rules,
        figures=[*figures.tasks(base, head), *figures.headlines(base, head)],
        memory=memory if planned else [],
        memory_note="" if planned else NOT_PLANNED,
        rows=rows,
        recorded=bool(lock) and not left and not doubts["head"],
        planned=planned,
    )


def _doubts(
    span: Span, sides: Sequence[Pipeline], locks: Sequence[Mapping[str, Any]], left: list[str]
) -> dict[str, Foreign]:
    """Of head and base, what is not as the own dvc.lock says; for the head beside `left`."""
    found = {}
    for name, place, commit, told in (("head", 1, span.head, left), ("base", 0, span.base, [])):
        side = sides[place]
        with _at_commit(side.root, commit):
            found[name] = foreign(side.root, locks[place], side.params, told=told)
    return found


def _pipeline(root: Path, commit: str) -> Pipeline:
    with _at_commit(root, commit):
        return read_pipeline(root)


@contextmanager
def _at_commit(root: Path, commit: str) -> Iterator[None]:
    """Findings name the file at its commit, not the folder that is gone when they are read."""
    try:
        yield
    except InputError as error:
        raise InputError(
            replace(found, file=f"{commit[:12]}:{(found.file or '').removeprefix(f'{root}/')}")
            for found in error.findings
        ) from error


def _lock(root: Path, commit: str) -> dict[str, Any]:
    file = root / LOCK
    with _at_commit(root, commit):
        return read_stages(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _has_plan(pipeline: Pipeline) -> bool:
    """Whether the revision's report of plan is the one that DVC recorded for its params."""
    file = pipeline.root / LOCK
    if not file.is_file():
        return False
    text = file.read_text(encoding="utf-8")
    return not stale_plan(text, pipeline.params, Path(figures.PLAN), root=pipeline.root)
