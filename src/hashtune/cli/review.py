"""hashtune review BASE..HEAD: what a pull request changes, as Markdown on standard output."""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hashtune.cli.page_file import write_page
from hashtune.lineage.rebuild import cache_of
from hashtune.memory.reckoned import Reckoned, reckon
from hashtune.report.sources import commit_source
from hashtune.review.compare import compare
from hashtune.review.composed import composed_notices
from hashtune.review.page import Review, markdown
from hashtune.review.revisions import Span, export, read_span
from hashtune.store.manifest import Manifest, read_manifest

MANIFEST = "build/base/manifest.json"


def run(arguments: argparse.Namespace) -> int:
    """Compare two commits; nothing of the workspace is read but Git's objects and, for the shape of
    the base, what the DVC cache holds by the hashes in dvc.lock."""
    root = Path.cwd()
    span = read_span(root, arguments.span)
    with tempfile.TemporaryDirectory(prefix="hashtune-review-") as folder:
        base = export(root, span.base, Path(folder) / "base")
        head = export(root, span.head, Path(folder) / "head")
        review = compare(span, base, head)
        review = replace(review, notices=[*review.notices, *composed_notices(head)])
        if not review.planned:
            manifests = list(_manifests(root, span))
            same_data = not any(rows.role.startswith("data.") for rows in review.rows)
            review = with_memory(review, reckon(base, head, manifests, same_data=same_data))
    page = markdown(review)
    if arguments.output is not None:
        start = "# Review of "
        write_page(Path(arguments.output), page, start=start, command="review", option="--output")
        print(f"written to {arguments.output}")
    else:
        print(page, end="")
    return 0


def with_memory(review: Review, found: Reckoned) -> Review:
    """The review with a plan that was reckoned, and a warning where the head does not fit."""
    warnings = []
    if found.lacking:
        warnings.append(
            f"By its spec the head does not fit: a step lacks {found.lacking / 1e9:.2f} GB. The"
            " stage `plan` refuses it."
        )
    notices = [*review.notices, *warnings]
    return replace(review, notices=notices, memory=found.figures, memory_note=found.note)


def _manifests(root: Path, span: Span) -> Iterator[Manifest]:
    """The bases that the two commits recorded, as far as the DVC cache holds them."""
    cache = cache_of(root)
    for commit in dict.fromkeys((span.head, span.base)):
        file = commit_source(root, commit, cache).output(MANIFEST).get("")
        if file is not None:
            yield read_manifest(file)
