"""Past failures become suite items: what once went wrong is asked from every adapter after.

Pure functions from answers and options to lines of a suite file; nothing is written here. An item
whose rules the recorded answer passes is refused: such rules would not have caught the failure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.errors import Finding, InputError, nearest
from hashtune.evaluation.near_items import near_pairs
from hashtune.evaluation.rules import KINDS, check_rules, failed_rules
from hashtune.evaluation.suites import SuiteItem, item_findings, item_of
from hashtune.records import Message
from hashtune.strict_json import StrictJsonError, parse_strict
from hashtune.writers import sha256_bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that went wrong: its messages, and the answer that was given if one is known."""

    id: str
    prompt: str
    system: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every new item gets: slice, rationale, and rules or choices (the first is right)."""

    slice: str
    rationale: str
    rules: tuple[dict[str, Any], ...] = ()
    choices: tuple[str, ...] = ()


def parse_rule(text: str) -> dict[str, Any]:
    """A rule from KIND or KIND=VALUE: the value as JSON, as a text, or as a list of one text,
    whichever the kind takes first. What it does not take stays as it is, for check_rules."""
    kind, equals, given = text.partition("=")
    if not equals:
        return {"kind": kind}
    try:
        values: list[Any] = [parse_strict(given)]
    except StrictJsonError:
        values = []
    values += [given, [given]]
    known = KINDS.get(kind)
    fits = [value for value in values if known and known.accepts(value)]
    return {"kind": kind, "value": (fits or values)[0]}


def from_answers(
    rows: Sequence[Mapping[str, Any]],
    ids: Sequence[str],
    *,
    file: str,
    asked: Mapping[str, Sequence[Message]],
) -> list[Failure]:
    """The failures with these ids among recorded answers.

    Args:
        rows: lines with an id, the answer ("answer" or "output") and, unless `asked` has the id,
            what was asked: "messages" or "prompt".
        ids: which of them, in this order.
        file: their file, for the findings.
        asked: messages by id, for answers that were recorded without them.

    Raises:
        InputError: ids that are not there or there more than once; rows without a request, or
            with one that is no single user message.
    """
    known = {str(row["id"]): row for row in rows if "id" in row}
    times = Counter(str(row["id"]) for row in rows if "id" in row)
    failures, findings = [], []
    for name in ids:
        if name not in known:
            fix = nearest(name, known)[:200]
            findings.append(Finding("unknown-id", f"has no answer {name!r}", file=file, fix=fix))
            continue
        if times[name] > 1:
            message = f"has {times[name]} answers {name!r}"
            fix = "name each answer once, or keep the one that is meant"
            findings.append(Finding("repeated-id", message, file=file, fix=fix))
            continue
        made = _failure(name, known[name], asked.get(name), file=file)
        if isinstance(made, Finding):
            findings.append(made)
        else:
            failures.append(made)
    if findings:
        raise InputError(findings)
    return failures


def _failure(
    name: str, row: Mapping[str, Any], asked: Sequence[Message] | None, *, file: str
) -> Failure | Finding:
    prompt = row.get("prompt")
    messages: Any = row.get("messages") or asked
    if messages is None and isinstance(prompt, str):
        messages = [{"role": "user", "content": prompt}]
    if messages is None:
        message = f"the answer {name!r} is recorded without what was asked"
        return Finding("no-prompt", message, file=file, fix="give it with --prompt")
    if not isinstance(messages, list | tuple) or not all(isinstance(m, dict) for m in messages):
        message = f"the messages of {name!r} are no list of objects"
        return Finding("messages", message, file=file, fix="give it with --prompt")
    while messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    system = [m.get("content") for m in messages[:-1] if m.get("role") == "system"]
    last = messages[-1] if messages else {}
    single = len(messages) == 1 + len(system) and len(system) <= 1 and last.get("role") == "user"
    if not single or not all(isinstance(text, str) for text in (*system, last.get("content"))):
        message = f"{name!r} is a conversation of several turns or parts"
        return Finding("turns", message, file=file, fix="ask it in one message, with --prompt")
    answer = row.get("answer", row.get("output"))
    text = answer if isinstance(answer, str) else None
    return Failure(name, last["content"], system[0] if system else None, text)


def own_id(slice_: str, prompt: str) -> str:
    """An id for a request that has none: the slice and 8 hex digits of the request's sha256."""
    return f"{slice_}-{sha256_bytes(prompt.encode())[:8]}"


def new_lines(
    failures: Sequence[Failure], wanted: Wanted, existing: Sequence[SuiteItem], *, file: str
) -> list[dict[str, Any]]:
    """Lines for the suite file, one per failure.

    Raises:
        InputError: all findings at once: broken rules or choices, ids in use, requests that are
            nearly those of another item, rules that the recorded answer passes.
    """
    lines = [_line(failure, wanted) for failure in failures]
    findings = [
        finding for line in lines for finding in item_findings((0, line), file=str(line["id"]))
    ]
    used = {item.id: item.suite for item in existing}
    for line in lines:
        findings += _name_findings(line, file=file)
        if line["id"] in used:
            message = f"{line['id']!r} is in suite {used[line['id']]!r} already"
            findings.append(Finding("id", message, file=file, field="id"))
        used[str(line["id"])] = "of this command"
    if findings:
        raise InputError([_without_line(finding) for finding in findings])
    items = [item_of(line, suite="new") for line in lines]
    findings = _near(items, existing, file=file)
    for failure in failures:
        findings += _not_caught(failure, wanted, file=file)
    if findings:
        raise InputError(findings)
    return lines


def _line(failure: Failure, wanted: Wanted) -> dict[str, Any]:
    line: dict[str, Any] = {
        "id": failure.id,
        "slice": wanted.slice,
        "rationale": wanted.rationale,
    }
    if failure.system is not None:
        line["system"] = failure.system
    if not wanted.choices:
        return line | {"prompt": failure.prompt, "rules": list(wanted.rules)}
    place = int(sha256_bytes(failure.prompt.encode())[:8], 16) % len(wanted.choices)
    choices = list(wanted.choices[1:])
    choices.insert(place, wanted.choices[0])  # not always the first
    return line | {"question": failure.prompt, "choices": choices, "answer": place}


def _name_findings(line: Mapping[str, Any], *, file: str) -> list[Finding]:
    """The id and the slice stand in reports, tables and names of rules: text of one line."""
    wrong = {"id": "is no text or blank"} if not str(line["id"]).strip() else {}
    wrong |= {
        key: "holds a line break or another character that does not print"
        for key in ("id", "slice")
        if not str(line[key]).isprintable()
    }
    return [Finding("suite-item", told, file=file, field=key) for key, told in wrong.items()]


def _without_line(finding: Finding) -> Finding:
    return Finding(finding.rule, finding.message, file=finding.file, field=finding.field)


def _near(items: Sequence[SuiteItem], existing: Sequence[SuiteItem], *, file: str) -> list[Finding]:
    new = {item.id for item in items}
    return [
        Finding(
            "near-duplicate",
            f"{item.id!r} asks nearly what {other.id!r} of suite {other.suite!r} asks"
            f" (Jaccard {found:.2f})",
            file=file,
            fix="one item per ability: leave it out, or ask it in another way with --prompt",
        )
        for item, other, found in near_pairs([*existing, *items])
        if item.id in new
    ]


def _not_caught(failure: Failure, wanted: Wanted, *, file: str) -> list[Finding]:
    if failure.answer is None or not wanted.rules or check_rules(wanted.rules):
        return []
    if failed_rules(wanted.rules, failure.answer):
        return []
    message = f"the recorded answer of {failure.id!r} passes these rules"
    fix = "give a rule that it breaks, or the failure would not be seen again"
    return [Finding("not-caught", message, file=file, field="rules", fix=fix)]
