"""hashtune report: a run as one self-contained HTML page, or several runs compared."""

import argparse
from pathlib import Path

from hashtune.cli.page_file import write_page
from hashtune.errors import Finding, InputError
from hashtune.lineage.rebuild import cache_of
from hashtune.report.comparison import comparison_page
from hashtune.report.look import HEAD
from hashtune.report.runs import read_run
from hashtune.report.single import single_page
from hashtune.report.sources import Source, Workspace, commit_source, experiments

DEFAULT = Path("build/report.html")


def run(arguments: argparse.Namespace) -> int:
    """Write the page; exit code 0 whatever the verdict."""
    root = Path.cwd()
    sources = _sources(root, arguments.runs, every=arguments.experiments)
    runs = [read_run(source) for source in sources]
    if not any(found.reports for found in runs):
        message = "no report of a stage is there"
        raise InputError(Finding("no-reports", message, file="reports/", fix="dvc repro"))
    page = single_page(runs[0]) if len(runs) == 1 else comparison_page(runs)
    file = Path(arguments.output)
    if file == DEFAULT:
        file.parent.mkdir(exist_ok=True)  # a clone has no build/ yet
    write_page(file, page, start=HEAD[:100], command="report", option="--output")
    print(f"written to {file}")
    return 0


def _sources(root: Path, names: list[str], *, every: bool) -> list[Source]:
    """The named runs, or the workspace; with `every` all experiments too. All unknown names are
    told at once."""
    wanted = list(dict.fromkeys([*names, *(n for n, _ in experiments(root) if every)]))
    if not wanted:
        return [Workspace(root)]
    cache = cache_of(root)
    found: list[Source] = []
    findings: list[Finding] = []
    for name in wanted:
        try:
            found.append(
                Workspace(root) if name == "workspace" else commit_source(root, name, cache)
            )
        except InputError as error:
            findings += error.findings
    if findings:
        raise InputError(findings)
    return found
