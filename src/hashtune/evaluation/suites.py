"""Regression suites: frozen items that an adapter must not lose.

A line of a suite file is one of two kinds, told apart by its keys:

    {"id", "slice", "rationale", "prompt", "rules"}               the answer must pass all rules
    {"id", "slice", "rationale", "question", "choices", "answer"} `answer` is the right index

The rationale says why the item is there and what losing it would mean; "system", a system message,
may be left out. A score is 1.0 or 0.0. A cap
(regression.max_items) takes items from all slices in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.evaluation.frozen import Line, read_frozen, repeated_ids
from hashtune.evaluation.rules import check_rules, passes
from hashtune.records import Message
from hashtune.spec.schema import Suite

COMMON = {"id", "slice", "rationale"}
GENERATED = COMMON | {"prompt", "rules"}
CHOICE = COMMON | {"question", "choices", "answer"}
OPTIONAL = {"system"}


@dataclass(frozen=True, slots=True)
class SuiteItem:
    """One item: `prompt` is the user message; `rules` for a generated answer, or `choices` and
    the index `answer` of the right one for multiple choice."""

    id: str
    suite: str
    slice: str
    prompt: str
    rules: tuple[dict[str, Any], ...] = ()
    choices: tuple[str, ...] = ()
    answer: int = -1
    rationale: str = ""
    system: str | None = None

    @property
    def messages(self) -> list[Message]:
        """What the model is given."""
        user: Message = {"role": "user", "content": self.prompt}
        return [user] if self.system is None else [{"role": "system", "content": self.system}, user]

    @property
    def kind(self) -> str:
        """ "choice" or "generated"."""
        return "choice" if self.choices else "generated"

    @property
    def chance(self) -> float:
        """The score that guessing gives: one of the choices; no text passes rules by guessing."""
        return round(1 / len(self.choices), 6) if self.choices else 0.0


def load_suites(suites: Sequence[Suite], *, max_items: int | None, root: Path) -> list[SuiteItem]:
    """The items of all suites in declared order, capped at max_items over all suites.

    Raises:
        InputError: every fault of every suite file at once.
    """
    items: list[SuiteItem] = []
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    for index, suite in enumerate(suites):
        field = f"regression.suites[{index}]"
        try:
            lines = read_frozen(suite.uri, sha256=suite.sha256, root=root, field=field)
        except InputError as error:
            findings += error.findings
            continue
        found = repeated_ids(lines, file=suite.uri, seen=seen)
        for line in lines:
            found += item_findings(line, file=suite.uri)
        if not found:
            items += [item_of(value, suite=suite.name) for _, value in lines]
        findings += found
    if findings:
        raise InputError(findings)
    return items if max_items is None else spread(items, max_items)


def spread(items: Sequence[SuiteItem], count: int) -> list[SuiteItem]:
    """At most `count` items, one of each slice in turn, in the order of the files."""
    ranks: list[tuple[int, int]] = []  # (how many of its slice came before, position)
    sizes: dict[str, int] = {}
    for position, item in enumerate(items):
        ranks.append((sizes.get(item.slice, 0), position))
        sizes[item.slice] = ranks[-1][0] + 1
    kept = sorted(position for _, position in sorted(ranks)[:count])
    return [items[position] for position in kept]


def score_generated(item: SuiteItem, answer: str) -> float:
    """1.0 if the answer passes every rule of the item."""
    return float(passes(item.rules, answer))


def item_of(value: dict[str, Any], *, suite: str) -> SuiteItem:
    """The item of a line that `item_findings` finds nothing wrong with."""
    generated = "prompt" in value
    return SuiteItem(
        id=value["id"],
        suite=suite,
        slice=value["slice"],
        prompt=value["prompt"] if generated else value["question"],
        rules=tuple(value["rules"]) if generated else (),
        choices=() if generated else tuple(value["choices"]),
        answer=-1 if generated else value["answer"],
        rationale=value["rationale"],
        system=value.get("system"),
    )


def item_findings(line: Line, *, file: str) -> list[Finding]:
    """What is wrong with one line of a suite file, apart from its id."""
    number, value = line
    wanted = GENERATED if "prompt" in value else CHOICE
    problems = [(key, "is missing") for key in sorted(wanted - set(value))]
    problems += [(key, "is unknown here") for key in sorted(set(value) - wanted - OPTIONAL)]
    problems += [
        (key, "is no text or blank")
        for key in ("slice", "rationale", "system", "prompt", "question")
        if key in value and not _is_text(value[key])
    ]
    if "rules" in value:
        problems += [("rules", fault) for fault in _rule_faults(value["rules"])]
    if "choices" in value:
        problems += _choice_faults(value["choices"], value.get("answer"))
    return [
        Finding("suite-item", message, file=file, line=number, field=field)
        for field, message in problems
    ]


def _rule_faults(rules: object) -> list[str]:
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        return ["is no list of rules"]
    return check_rules(rules)


def _choice_faults(choices: object, answer: object) -> list[tuple[str, str]]:
    if not isinstance(choices, list) or not all(_is_text(choice) for choice in choices):
        return [("choices", "is no list of texts, none blank")]
    faults = []
    if len(choices) < 2 or len(set(choices)) < len(choices):
        faults.append(("choices", "needs at least two choices, all different"))
    whole = isinstance(answer, int) and not isinstance(answer, bool)
    if not whole or not 0 <= int(str(answer)) < len(choices):
        faults.append(("answer", f"is no index of the {len(choices)} choices"))
    return faults


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
