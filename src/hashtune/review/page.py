"""The review as Markdown. What comes from data is fenced or escaped: shown, never rendered."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.review.consequences import Group
from hashtune.review.figures import Figure, RuleChange
from hashtune.review.reruns import Rerun
from hashtune.review.rows import RowDifference
from hashtune.review.settings import Change

EXAMPLES = 3
NOTHING_NEW = "None are recorded for the head: its reports are the base's, see the warning above."
LONGEST = 300  # characters of a row that are shown


@dataclass(frozen=True, slots=True)
class Review:
    """All that is told, in the order of the page."""

    base: str
    head: str
    notices: list[str]
    changes: list[Change]
    batch: tuple[int | None, int | None]
    reruns: list[Rerun]
    certain: float
    seconds: float
    price: float
    currency: str
    verdict: Figure
    rules: list[RuleChange]
    figures: list[Figure]
    memory: list[Figure]
    memory_note: str  # where the figures are from; "" for the recorded ones
    rows: list[RowDifference]
    recorded: bool  # whether the head has results of its own
    planned: bool  # whether both have a memory plan of their own


def markdown(review: Review) -> str:
    """The whole page; ends with a newline."""
    lines = [f"# Review of {review.base[:12]}..{review.head[:12]}", ""]
    lines += _notices(review.notices)
    lines += _spec(review)
    lines += _stages(review)
    if review.recorded:
        lines += _gate(review)
        lines += _table("Figures", review.figures)
    else:
        lines += ["## Gate and figures", "", NOTHING_NEW, ""]
    lines += _memory(review)
    lines += _data(review.rows)
    return "\n".join(lines).rstrip("\n") + "\n"


def _notices(found: Sequence[str]) -> Iterator[str]:
    if found:
        yield from ("## Look here first", "")
        yield from (f"- **Warning:** {sentence}" for sentence in found)
        yield ""


def _spec(review: Review) -> Iterator[str]:
    yield from ("## Spec", "")
    if not review.changes:
        yield from ("No setting changed.", "")
    for group in Group:
        inside = [change for change in review.changes if change.groups[0] is group]
        if inside:
            yield from (f"### {group}", "")
            yield from (_change(change) for change in inside)
            yield ""
    before, after = review.batch
    was = "unchanged" if before == after else f"before: {_shown(before)}"
    rows = "row" if after == 1 else "rows"
    yield from (f"Effective batch: {_shown(after)} {rows} per optimizer step ({was}).", "")


def _change(change: Change) -> str:
    old, new = _code(_shown(change.old)), _code(_shown(change.new))
    more = [group for group in change.groups[1:] if group in (Group.TOKENS, Group.VERDICT)]
    also = "".join(f" **{group}**, too." for group in more)
    return f"- {_code(change.key)}: {old} → {new}: {change.words}.{also}"


def _stages(review: Review) -> Iterator[str]:
    yield from ("## Stages that rerun", "")
    if not review.reruns:
        yield from ("None: `dvc repro` finds every output up to date.", "")
        return
    yield from ("| stage | why | last measured |", "|---|---|---|")
    for rerun in review.reruns:
        why = "; ".join(rerun.reasons) or f"if {_names(rerun.after)} gives other outputs"
        time = "seconds" if rerun.seconds is None else f"{rerun.seconds:.0f} s"
        yield f"| {rerun.stage} | {_cell(why)} | {time} |"
    cost = f", {review.price:.2f} {review.currency}" if review.price else ", no price is set"
    yield ""
    yield (
        f"{review.certain / 60:.1f} minutes for those that rerun by themselves, at most "
        f"{review.seconds / 60:.1f} for all, as the last run's machine measured{cost}."
    )
    yield ""


def _gate(review: Review) -> Iterator[str]:
    verdict = review.verdict
    yield from ("## Gate", "")
    yield f"Verdict: {_shown(verdict.old)} → **{_shown(verdict.new)}**"
    yield ""
    changed = [rule for rule in review.rules if rule.old != rule.new]
    if changed:
        yield from ("| rule | before | after | allowed | verdict |", "|---|---|---|---|---|")
        yield from (*map(_rule, changed), "")
    if review.rules:
        yield _unchanged([rule.name for rule in review.rules if rule.old == rule.new])
        yield ""


def _rule(rule: RuleChange) -> str:
    old, new = _measured(rule.old), _measured(rule.new)
    allowed = (rule.new or rule.old or {}).get("threshold")
    words = [(side or {}).get("verdict") for side in (rule.old, rule.new)]
    verdict = words[1] if words[0] == words[1] else f"{_shown(words[0])} → **{_shown(words[1])}**"
    return f"| {_cell(rule.name)} | {old} | {new} | {_shown(allowed)} | {verdict} |"


def _measured(rule: Any) -> str:
    """A value with its interval: both bounds, or the one that the rule is judged by."""
    if rule is None:
        return "none"
    text = _shown(rule.get("value"))
    if interval := rule.get("interval"):
        return f"{text} [{', '.join(map(_shown, interval))}]"
    bound = rule.get("bound")
    return text if bound is None else f"{text} (bound {_shown(bound)})"


def _table(title: str, figures: Sequence[Figure]) -> Iterator[str]:
    if not figures:
        return
    changed = [figure for figure in figures if figure.old != figure.new]
    yield from (f"## {title}", "")
    yield from ("| | before | after | |", "|---|---|---|---|") if changed else ()
    for figure in changed:
        words, old, new = _cell(figure.words.strip()), _shown(figure.old), _shown(figure.new)
        yield f"| {words} | {old} | {new} | {_step(figure)} |"
    same = [f"{_cell(f.words.strip())} = {_shown(f.old)}" for f in figures if f.old == f.new]
    yield from (*([""] if changed else []), _unchanged(same), "")


def _memory(review: Review) -> Iterator[str]:
    """The plan as it was recorded, or as it was reckoned from the two specs, or why neither."""
    lines = list(_table("Memory plan", review.memory)) or ["## Memory plan", ""]
    note = [review.memory_note, ""] if review.memory_note else []
    yield from (*lines[:2], *note, *lines[2:])


def _unchanged(names: Sequence[str]) -> str:
    return f"Unchanged: {'; '.join(names) or 'none'}."


def _step(figure: Figure) -> str:
    if all(isinstance(side, int | float) for side in (figure.old, figure.new)):
        step = figure.new - figure.old
        return "" if step == 0 else f"{step:+.4g}"
    return "" if figure.old == figure.new else "changed"


def _data(found: Sequence[RowDifference]) -> Iterator[str]:
    yield from ("## Data", "")
    if not found:
        yield "No data file changed."
    for rows in found:
        yield from (f"### {_code(rows.role)}: {_code(rows.uri)}", "")
        if rows.note:
            yield from (f"It {rows.note}.", "")
            continue
        yield (
            f"{rows.before} → {rows.after} rows: {len(rows.added)} added, {len(rows.removed)}"
            f" removed, {len(rows.changed)} changed.{f' {rows.same}' if rows.same else ''}"
        )
        yield ""
        yield from _examples("Added", [[text] for text in rows.added])
        yield from _examples("Removed", [[text] for text in rows.removed])
        yield from _examples("Changed", [list(pair) for pair in rows.changed])


def _examples(title: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    shown = [_marked(title, texts) for texts in rows[:EXAMPLES]]
    fence = "`" * max(3, 1 + max(_longest_ticks(line) for lines in shown for line in lines))
    yield from (f"{title}, {min(EXAMPLES, len(rows))} of {len(rows)}:", "", f"{fence}diff")
    yield from (line for lines in shown for line in lines)
    yield from (fence, "")


def _marked(title: str, texts: Sequence[str]) -> list[str]:
    signs = {"Added": "+", "Removed": "-"}
    marks = signs.get(title, "-+")
    return [f"{mark} {_short(text, texts)}" for mark, text in zip(marks, texts, strict=True)]


def _short(text: str, texts: Sequence[str]) -> str:
    """A row in LONGEST characters, of a pair the part around where they begin to differ."""
    start = 0
    if len(texts) == 2:
        pairs = zip(*texts, strict=False)
        same = next((place for place, (a, b) in enumerate(pairs) if a != b), 0)
        start = max(0, same - LONGEST // 3)
    cut = text[start : start + LONGEST]
    return ("…" if start else "") + cut + ("…" if start + LONGEST < len(text) else "")


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return f"{value[:12]}…"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    """As code, whatever it holds; long values in short."""
    text = " ".join(text.split()) or " "
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    ticks = "`" * (1 + _longest_ticks(text))
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _names(stages: Iterable[str]) -> str:
    *most, last = stages
    return f"{', '.join(most)} or {last}" if most else last
