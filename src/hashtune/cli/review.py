"""hashtune review BASE..HEAD: what a pull request changes, as Markdown on standard output."""

import argparse
import tempfile
from pathlib import Path

from hashtune import writers
from hashtune.review.compare import compare
from hashtune.review.page import markdown
from hashtune.review.revisions import export, read_span


def run(arguments: argparse.Namespace) -> int:
    """Compare two commits; nothing of the workspace is read but Git's objects."""
    root = Path.cwd()
    span = read_span(root, arguments.span)
    with tempfile.TemporaryDirectory(prefix="hashtune-review-") as folder:
        base = export(root, span.base, Path(folder) / "base")
        head = export(root, span.head, Path(folder) / "head")
        page = markdown(compare(span, base, head))
    if arguments.output:
        writers.write_text(Path(arguments.output), page)
        print(f"written to {arguments.output}")
    else:
        print(page, end="")
    return 0
