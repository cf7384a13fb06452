"""The page of several runs: verdicts, what varied, figures against the setting, curves together."""

from collections.abc import Iterator, Sequence
from typing import Any

from hashtune.report.charts import Series, line_chart
from hashtune.report.look import page
from hashtune.report.runs import Run
from hashtune.report.several import METRICS_OF_RUNS, SEEDS, groups, sentences, varied
from hashtune.report.single import safe, shown, table, verdict_class
from hashtune.spec.drift import leaves


def comparison_page(runs: Sequence[Run]) -> str:
    """The whole page; runs in the given order."""
    keys = varied(runs)
    body = f"<h1>hashtune report: {len(runs)} runs</h1>\n"
    body += _table(runs, keys) + _words(runs) + _charts(runs, keys) + _curves(runs)
    return page(f"hashtune report: {len(runs)} runs", body)


def _table(runs: Sequence[Run], keys: Sequence[str]) -> str:
    head = ["run", "verdict", *(metric.name for metric in METRICS_OF_RUNS), *map(safe, keys)]
    rows = []
    for run in runs:
        verdict = run.figure("gate", "verdict") or "none"
        values = leaves(run.params)
        rows.append(
            [
                safe(run.label),
                f'<strong class="{verdict_class(verdict)}">{safe(verdict)}</strong>',
                *(shown(metric.of(run)) for metric in METRICS_OF_RUNS),
                *(shown(values.get(key)) for key in keys),
            ]
        )
    return '<h2 id="verdict">Verdicts</h2>\n' + table(head, rows)


def _words(runs: Sequence[Run]) -> str:
    found = groups(runs)
    lines = [line for metric in METRICS_OF_RUNS for line in sentences(found, metric)]
    if not lines:
        seeds = [key for key in varied(runs) if key in SEEDS]
        words = "The runs differ in their seeds alone." if seeds else "The runs have one spec."
        lines = [words]
    items = "".join(f"<li>{safe(line)}</li>\n" for line in lines)
    return f"<h2>What differs</h2>\n<ul>\n{items}</ul>\n"


def _charts(runs: Sequence[Run], keys: Sequence[str]) -> str:
    """Each metric against the one numeric setting that varies beside the seeds, if there is one."""
    numeric = [key for key in keys if key not in SEEDS and all(_number(run, key) for run in runs)]
    if len(numeric) != 1:
        return ""
    [key] = numeric
    charts = ""
    for metric in METRICS_OF_RUNS:
        points = sorted(_points(runs, key, metric))
        if points:
            series = [Series(metric.name, points)]
            charts += line_chart(f"{metric.name} against {key}", series, x=key, y=metric.name)
    return f"<h2>Against {safe(key)}</h2>\n{charts}" if charts else ""


def _points(runs: Sequence[Run], key: str, metric: Any) -> Iterator[tuple[float, float]]:
    for run in runs:
        value = metric.of(run)
        if value is not None:
            yield float(str(leaves(run.params)[key])), value


def _number(run: Run, key: str) -> bool:
    value = leaves(run.params).get(key)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curves(runs: Sequence[Run]) -> str:
    body = ""
    for name, title in (("eval/loss", "Eval loss"), ("train/loss", "Train loss")):
        series = [Series(run.label, run.curves[name]) for run in runs if name in run.curves]
        body += line_chart(title, series, x="step", y="nats per trained token")
    return f"<h2>Curves</h2>\n{body}" if body else ""
