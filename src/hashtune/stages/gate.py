"""Stage gate: pass, fail, or not enough evidence?

Reads the answers and conditions of baseline, evaluate and regress; writes reports/gate.json. Ends
with exit code 0 whatever the verdict, so that a failing experiment stays comparable;
`hashtune check --gate` is what fails a CI run. Needs no torch: about a second.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.evaluation.evidence import Evidence, Side
from hashtune.evaluation.gate import decide
from hashtune.evaluation.verdicts import Rule

BASELINE = Path("build/baseline")
EVALUATE = Path("build/evaluate")
REGRESS = Path("build/regress")


def run() -> None:
    """Judge the adapter and say why.

    Raises:
        InputError: the evidence does not belong together or proves nothing.
    """
    spec = frame.read_spec("eval_gate")
    verdict = decide(_evidence(), spec.eval_gate)
    frame.write_report(
        "gate",
        {
            "verdict": verdict.verdict,
            "summary": verdict.summary,
            "rules": [_rounded(rule) for rule in verdict.rules],
        },
    )
    frame.say(f"verdict: {verdict.verdict} ({verdict.summary})")
    for rule in verdict.rules:
        frame.say(f"  {rule.verdict:<20} {rule.name}: {rule.meaning}")


def _evidence() -> Evidence:
    def side(task: Path, suites: Path) -> Side:
        of_task = writers.read_json(task / "scores.json")
        of_suites = writers.read_json(suites / "scores.json")
        return Side(
            task=writers.read_jsonl(task / "task.jsonl"),
            suites=writers.read_jsonl(suites / "suites.jsonl"),
            task_conditions=of_task["task_conditions"],
            suite_conditions=of_suites["suite_conditions"],
            task_noise=of_task["noise_floor"]["task"]["floor"] or 0.0,
            suite_noise=of_suites["noise_floor"]["suites"]["floor"] or 0.0,
        )

    return Evidence(base=side(BASELINE, BASELINE), adapter=side(EVALUATE, REGRESS))


def _rounded(rule: Rule) -> dict[str, Any]:
    """The rule as data, floats at 6 decimals: what a reader and a diff need."""
    data = asdict(rule)
    if rule.interval:
        data["interval"] = [round(bound, 6) for bound in rule.interval]
    return {
        key: round(value, 6) if isinstance(value, float) else value for key, value in data.items()
    }


if __name__ == "__main__":
    frame.main("gate", run)
