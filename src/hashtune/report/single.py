"""The page of one run: verdict first, then why, curves, gains, answers, memory, lineage."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from hashtune.inspection.visible import visible
from hashtune.lineage.lock import lookup
from hashtune.report.charts import Series, bar_chart, interval_chart, line_chart
from hashtune.report.gains import loss_marks, slice_gains, task_gains
from hashtune.report.look import page
from hashtune.report.runs import Pair, Run

CLASSES = {"pass": "pass", "fail": "fail"}
KINDS = (("lost", "lost"), ("won", "won"), ("other words", "changed"), ("same answer", "same"))
UNITS = {"hours": "h", "needed_gb": "GB"}


def single_page(run: Run) -> str:
    """The whole page of a run."""
    parts = [_verdict(run), _rules(run), _training(run), _gains(run), _fit(run)]
    parts += [_answers([*run.task, *run.suites]), _lineage(run)]
    title = safe(_title(run))
    return page(title, f"<h1>{title}</h1>\n" + "".join(parts))


def safe(text: object) -> str:
    """Text of data for the page: markup escaped, hidden characters shown."""
    return escape(visible(str(text)), quote=True)


def verdict_class(verdict: object) -> str:
    """Its style; anything but pass and fail is open."""
    return CLASSES.get(str(verdict), "open")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table; cells are already escaped."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    named = f"<caption>{caption}</caption>" if caption else ""
    return f'<div class="wide"><table>{named}<thead><tr>{top}</tr></thead>\n{body}</table></div>\n'


def shown(value: object) -> str:
    """A figure with four digits; nothing for None."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else safe(value)


def _title(run: Run) -> str:
    name = run.figure("release", "run") or run.params.get("run", {}).get("experiment", "run")
    return f"hashtune report: {name} ({run.label})"


def _verdict(run: Run) -> str:
    verdict = run.figure("gate", "verdict") or "no verdict: the gate did not run"
    summary = run.figure("gate", "summary") or ""
    return (
        f'<p class="verdict {verdict_class(verdict)}" id="verdict"><strong>{safe(verdict)}</strong>'
        f"<br>{safe(summary)}</p>\n"
    )


def _rules(run: Run) -> str:
    rules: Sequence[Any] = run.figure("gate", "rules") or ()
    if not rules:
        return ""
    rows = (
        (
            f'<span class="{verdict_class(rule["verdict"])}">{safe(rule["verdict"])}</span>',
            safe(rule["name"]),
            safe(rule["meaning"]),
        )
        for rule in rules
    )
    return "<h2>Why</h2>\n" + table(("verdict", "rule", "what it says"), rows)


def _training(run: Run) -> str:
    curves = run.curves
    lines = [Series(name, curves[name]) for name in ("train/loss", "eval/loss") if name in curves]
    chosen = run.figure("train", "adapter_step")
    body = line_chart(
        "Loss per trained token",
        lines,
        x="step",
        y="nats",
        marks=loss_marks(curves.get("eval/loss", []), chosen),
    )
    for name, title in (("train/lr", "Learning rate"), ("train/grad_norm", "Gradient norm")):
        if name in curves:
            body += line_chart(title, [Series(name, curves[name])], x="step", y="")
    if not body:
        body = "<p>No curves here: train did not run, or the DVC cache does not hold them.</p>\n"
    return f"<h2>Training</h2>\n{body}"


def _gains(run: Run) -> str:
    rules = [
        rule for rule in run.figure("gate", "rules") or () if ".gain_over_base" in rule["name"]
    ]
    scores = table(
        ("field", "gain over the base", "bound", "asked"),
        (
            (safe(r["name"]), shown(r["value"]), shown(r["bound"]), shown(r["threshold"]))
            for r in rules
        ),
    )
    confidence = lookup(run.params, "eval_gate.confidence")
    chart = ""
    if isinstance(confidence, float) and 0.5 < confidence < 1.0:
        spans = [
            *task_gains(run.task, confidence=confidence),
            *slice_gains(run.suites, confidence=confidence),
        ]
        title = f"Adapter less base, with one-sided {100 * confidence:g} % bounds"
        chart = interval_chart(title, spans)
    if not chart and not rules:
        return ""
    return f"<h2>Gains and losses</h2>\n{scores if rules else ''}{chart}"


def _fit(run: Run) -> str:
    """Lengths, packing, and the memory plan against what was measured."""
    body = ""
    lengths = run.figure("tokenize", "train.lengths") or {}
    body += bar_chart("Tokens of a train example", list(lengths.items()), unit="tokens")
    padding = [
        (name, 100 * float(share))
        for name, key in (("before packing", "before"), ("after packing", "after"))
        if (share := run.figure("pack", f"train.padding_fraction_{key}")) is not None
    ]
    body += bar_chart("Share of padding in the rows", padding, unit="%")
    buckets = run.figure("plan", "buckets_bytes") or {}
    parts = sorted(buckets.items(), key=lambda part: (-part[1], part[0]))
    body += bar_chart("Memory plan by part", [(n, b / 1e9) for n, b in parts if b], unit="GB")
    body += bar_chart("Memory planned and measured", _memory(run), unit="GB")
    return f"<h2>Data, packing and memory</h2>\n{body}" if body else ""


def _memory(run: Run) -> list[tuple[str, float]]:
    measured = run.machine.get("train", {}).get("peak_memory_gb")
    planned = run.figure("plan", "needed_gb")
    if measured is None or planned is None:
        return []
    return [("planned", float(planned)), ("measured peak", float(measured))]


def _answers(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return ""
    options = "".join(f'<option value="{kind}">{words}</option>' for words, kind in KINDS)
    find = (
        '<div class="find"><label>Search answers<br><input id="text" type="search"></label>\n'
        '<label>Which<br><select id="kind">'
        f'<option value="">all</option>{options}</select></label>\n'
        '<span id="count" role="status"></span></div>\n'
    )
    order = {kind: place for place, (_, kind) in enumerate(KINDS)}
    ordered = sorted(pairs, key=lambda pair: order[kind_of(pair)])
    return "<h2>Answers of base and adapter</h2>\n" + find + "".join(map(_article, ordered))


def kind_of(pair: Pair) -> str:
    """lost, won, changed (another answer of the same worth) or same."""
    if pair.adapter_score != pair.base_score:
        return "won" if pair.adapter_score > pair.base_score else "lost"
    return "same" if pair.adapter == pair.base else "changed"


def _article(pair: Pair) -> str:
    question = f"<pre>{safe(pair.question)}</pre>" if pair.question else ""
    wanted = f"<h4>reference</h4><pre>{safe(pair.reference)}</pre>" if pair.reference else ""
    kind = kind_of(pair)
    return (
        f'<article data-kind="{kind}"><h3>{safe(pair.slice)} · {safe(pair.id)} · {kind}</h3>\n'
        f'{question}<div class="sides">'
        + _side("base", pair.base_score, pair.base)
        + _side("adapter", pair.adapter_score, pair.adapter)
        + f"</div>{wanted}</article>\n"
    )


def _side(model: str, score: float, answer: str) -> str:
    return f"<div><h4>{model}, score {score:.4g}</h4><pre>{safe(answer)}</pre></div>"


def _lineage(run: Run) -> str:
    rows: Iterator[tuple[str, str, str]] = (
        (safe(stage), safe(path), f"<code>{safe(md5)}</code>") for stage, path, md5 in run.hashes
    )
    facts = [
        ("base", run.figure("base", "source"), run.figure("base", "base_sha256")),
        ("adapter", run.figure("train", "adapter_step"), run.figure("train", "adapter_sha256")),
        ("entry", run.figure("release", "name"), run.figure("release", "entry_sha256")),
    ]
    named = table(
        ("what", "which", "sha256"),
        ((name, shown(which), f"<code>{shown(digest)}</code>") for name, which, digest in facts),
    )
    outs = table(("stage", "output", "md5 in dvc.lock"), rows)
    return (
        f"<h2>Lineage</h2>\n{named}"
        f"<details><summary>Every output by its hash</summary>{outs}</details>\n"
    )
