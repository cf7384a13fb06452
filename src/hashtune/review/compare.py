"""Two folders of two revisions in, one review out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from hashtune.errors import InputError
from hashtune.lineage.lock import read_stages
from hashtune.review import figures
from hashtune.review.notices import Case, notices
from hashtune.review.page import Review
from hashtune.review.reruns import (
    Pipeline,
    Rerun,
    cost,
    not_rerun,
    read_pipeline,
    reruns,
    with_seconds,
)
from hashtune.review.revisions import Span
from hashtune.review.rows import leaks, row_differences
from hashtune.review.settings import changes, effective_batch
from hydra_plugins.hashtune_conf import conf_sha256


def compare(span: Span, base: Path, head: Path) -> Review:
    """What `head` changes against `base`.

    Raises:
        InputError: a params.yaml, lock or dvc.yaml that cannot be read.
    """
    old, new = _pipeline(base, span.base), _pipeline(head, span.head)
    changed = changes(old.params, new.params)
    rows = row_differences(base, head, old.params, new.params)
    lock = _lock(head)
    first = [Rerun(stage, ["dvc.lock is missing"]) for stage in new.stages]
    found = with_seconds(reruns(old, new) if lock else first, old, new)
    left = not_rerun(found, _lock(base), lock) if lock else []
    seconds, price, currency = cost(found, new)
    certain, _, _ = cost([rerun for rerun in found if rerun.certain], new)
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
        memory=figures.memory(base, head),
        rows=rows,
        recorded=bool(lock) and not left,
    )


def _pipeline(root: Path, commit: str) -> Pipeline:
    """Findings name the file at its commit, not the folder that is gone when they are read."""
    try:
        return read_pipeline(root)
    except InputError as error:
        where = f"{commit[:12]}:"
        raise InputError(
            replace(found, file=found.file and found.file.replace(f"{root}/", where))
            for found in error.findings
        ) from error


def _lock(root: Path) -> dict[str, Any]:
    file = root / "dvc.lock"
    return read_stages(file.read_text(encoding="utf-8")) if file.is_file() else {}
