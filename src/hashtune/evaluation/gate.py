"""The gate: may this adapter ship? Evidence and margins in, one verdict per rule out.

drop = base - adapter over the suites, gain = adapter - rival on the task, both over the same items,
with one-sided bounds. A rule passes or fails where the bounds say so; what lies between is not
enough evidence and does not ship (gate_task, gate_suites). It ships when every rule passes, apart
from slices that cannot detect a loss: those are told, and the items that are left must be enough.
A difference within the noise floors of its two sides together (noise.py) is no difference: it makes
no gain, and fails no rule of a drop.
"""

from dataclasses import dataclass

from hashtune.evaluation.evidence import Evidence, check_evidence
from hashtune.evaluation.gate_suites import suite_rules
from hashtune.evaluation.gate_task import finished, task_rules
from hashtune.evaluation.verdicts import CANNOT, FAIL, PASS, UNSURE, Rule, Word, enough
from hashtune.spec.schema import EvalGate


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict over all rules: fail if one fails, else not enough evidence if one lacks it."""

    verdict: Word
    rules: list[Rule]
    summary: str


def decide(evidence: Evidence, gate: EvalGate) -> Verdict:
    """Judge an adapter by the margins of `gate`.

    Raises:
        InputError: evidence that proves nothing (see evidence.check_evidence).
    """
    check_evidence(evidence)
    base, adapter = evidence.base, evidence.adapter
    rules = [
        enough("task.items", items=len(adapter.task), least=gate.min_task_items),
        finished(adapter.task, gate),
        *task_rules(
            base.task,
            adapter.task,
            gate,
            noise={"base": base.task_noise + adapter.task_noise, "majority": adapter.task_noise},
        ),
        *suite_rules(
            base.suites, adapter.suites, gate, noise=base.suite_noise + adapter.suite_noise
        ),
    ]
    named = {word: [rule.name for rule in rules if rule.verdict == word] for word in (FAIL, UNSURE)}
    if named[FAIL]:
        failed = ", ".join(named[FAIL])
        return Verdict(FAIL, rules, f"fails {len(named[FAIL])} of {len(rules)}: {failed}")
    if named[UNSURE]:
        return Verdict(UNSURE, rules, f"not enough evidence for {', '.join(named[UNSURE])}")
    blind = [rule.name for rule in rules if rule.verdict == CANNOT]
    summary = f"passes all {len(rules) - len(blind)} rules"
    if blind:
        summary += f"; no loss could show in {', '.join(blind)}"
    return Verdict(PASS, rules, summary)
