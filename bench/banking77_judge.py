"""What a run on BANKING77 must show: accuracy, and of each spoilt run the gate's right reason."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_ACCURACY = 0.85
SCORE, BASE, MAJORITY = (
    f"task.answer.{end}" for end in ("score", "gain_over_base", "gain_over_majority")
)
DROP, OVER = "regression.drop", "regression.slice.over_refusals"


@dataclass(frozen=True, slots=True)
class Reason:
    """Rules that fail for this cause, rules that do not, and what that says in words."""

    fails: tuple[str, ...]
    holds: tuple[str, ...]
    words: str


REASONS: Mapping[str, Reason] = {
    "lr": Reason(
        (SCORE, BASE, DROP), (), "a broken model: the task is not learned, the suites are lost"
    ),
    "shuffled": Reason(
        (SCORE, BASE, MAJORITY),
        ("task.items", "task.unfinished", DROP),
        "answers end and the suites hold, but the intents are no better than the most frequent one",
    ),
    "refusals": Reason(
        (SCORE, BASE, OVER),
        ("task.items", "regression.slice.refusals"),
        "harmless questions are refused; refusing what is harmful was not lost",
    ),
}


def verdicts(gate: Mapping[str, Any]) -> dict[str, str]:
    """Verdict by rule of reports/gate.json."""
    return {rule["name"]: rule["verdict"] for rule in gate["rules"]}


def faults_of_full(gate: Mapping[str, Any], accuracy: float) -> list[str]:
    """Why the run on all rows does not show what it must; empty when it does."""
    faults = []
    if accuracy < LEAST_ACCURACY:
        faults.append(f"accuracy {accuracy:.4f} is below {LEAST_ACCURACY}")
    if gate["verdict"] != "pass":
        faults.append(f"the verdict is {gate['verdict']} ({gate['summary']}), not pass")
    return faults


def faults_of_spoilt(kind: str, gate: Mapping[str, Any]) -> list[str]:
    """Why a spoilt run was not rejected, or not for its reason; empty when it was."""
    reason, found = REASONS[kind], verdicts(gate)
    faults = []
    if gate["verdict"] != "fail":
        faults.append(f"the verdict is {gate['verdict']}, not fail")
    faults += [
        f"{rule} should fail and is: {found.get(rule, 'not there')}"
        for rule in reason.fails
        if found.get(rule) != "fail"
    ]
    faults += [
        f"{rule} should not fail" for rule in reason.holds if found.get(rule, "fail") == "fail"
    ]
    return faults


def accuracy_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of the rows of task.jsonl with a right answer."""
    return sum(row["scores"]["answer"] for row in rows) / len(rows)


def per_intent(
    base: Sequence[Mapping[str, Any]], adapter: Sequence[Mapping[str, Any]]
) -> list[tuple[str, int, float, float, str]]:
    """By intent, the worst first: items, accuracy of base and adapter, the adapter's most
    frequent wrong answer. Rows are those of task.jsonl, in the same order."""
    pairs = defaultdict(list)
    for old, new in zip(base, adapter, strict=True):
        pairs[new["reference"]].append((old, new))
    table = []
    for intent, both in pairs.items():
        wrong = Counter(new["answer"].strip() for _, new in both if not new["scores"]["answer"])
        most = min(wrong, key=lambda answer: (-wrong[answer], answer), default="")
        right = [accuracy_of(side) for side in zip(*both, strict=True)]
        table.append((intent, len(both), *right, f"{most} ({wrong[most]})" if most else ""))
    return sorted(table, key=lambda line: (line[3], line[0]))
