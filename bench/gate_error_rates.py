"""How often is the gate wrong? Simulated item tables through the whole decision.

    PYTHONPATH=src python bench/gate_error_rates.py    # exit 1 when a rate breaks its limit

Each table has its task (a plain gain) and suite items in slices, scored by base and adapter; the
two differ on a share of the items, by chance as often lost as won. Limits, at nominal 0.05 and
2,000 tables: 0.0645 is 0.05 and three standard errors of the simulation. An adapter without a loss
fails at most so often; one that loses exactly the margin passes at most so often; one that loses
what the gate calls detectable (power 0.8) fails at least 3 times of 4; one without a loss passes
at least 3 times of 4 under the demo's margins. The last rows have narrower margins than `spec`
takes or more changed items than planned; what they show has no limit.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hashtune.evaluation import gate
from hashtune.evaluation.evidence import Evidence, Side
from hashtune.evaluation.gate import Verdict
from hashtune.evaluation.power import detectable_drop
from hashtune.evaluation.verdicts import FAIL, PASS
from hashtune.spec.resolution import resolution
from hashtune.spec.schema import EvalGate

Decide = Callable[[Evidence, EvalGate], Verdict]
MOST_WRONG, LEAST_RIGHT = 0.0645, 0.75
DEMO = EvalGate(
    task_min=0.75,
    task_metric_min_gain=0.3,
    regression_max_drop=0.05,
    slice_max_drop=0.25,
    unfinished_max_share=0.05,
    confidence=0.95,
    discordant_share=0.1,
    min_task_items=100,
    min_regression_items=60,
)
SEVEN = (44, 43, 43, 43, 43, 43, 41)  # 300 items
FINEST = resolution(300, discordant_share=0.1, confidence=0.95)


@dataclass(frozen=True, slots=True)
class Case:
    """Tables of one kind. `drop` is the true one, in the first slice only if `alone`; `score` the
    value of an item won: 0.5 makes scores between 0 and 1. `word` occurs at least or at most so
    often (no limit: both None)."""

    what: str
    word: str
    sizes: tuple[int, ...] = SEVEN
    changed: float = 0.1
    drop: float = 0.0
    alone: bool = False
    score: float = 1.0
    gate: EvalGate = DEMO
    least: float | None = None
    most: float | None = None

    def holds(self, rate: float) -> bool:
        """Whether the rate keeps its limits."""
        return (self.least or 0.0) <= rate <= (1.0 if self.most is None else self.most)


def margins(whole: float, of_slice: float) -> EvalGate:
    """The demo's gate with other margins of drop."""
    return DEMO.model_copy(update={"regression_max_drop": whole, "slice_max_drop": of_slice})


def detectable(items: int, margin: float, slices: int = 1) -> float:
    """What the gate states, with the planned share of changed items."""
    drop = detectable_drop(items, margin=margin, discordant_share=0.1, confidence=1 - 0.05 / slices)
    assert drop is not None
    return drop


def cases() -> list[Case]:
    """The table's rows, in order."""
    same = Case("no loss, demo margins", FAIL, most=MOST_WRONG)
    finest = margins(FINEST, 0.0)
    return [
        same,
        replace(same, what="no loss, 30 % changed", changed=0.3),
        replace(same, what="no loss, 84 items", sizes=(24, 48, 12), gate=margins(0.1, 0.25)),
        replace(same, what="no loss, narrowest margins", gate=finest),
        replace(same, what="no loss, narrowest, 3 slices", gate=finest, sizes=(100,) * 3),
        replace(
            same,
            what="no loss, 15 strict slices",
            gate=margins(0.05, 0.0),
            sizes=(40,) * 15,
            changed=0.2,
        ),
        replace(  # two slices: each takes a bootstrap
            same,
            what="no loss, scores of 0, 0.5, 1",
            sizes=(150, 150),
            gate=finest,
            score=0.5,
            changed=0.2,
        ),
        Case("no loss, demo margins", PASS, least=LEAST_RIGHT),
        Case("true drop is the margin", PASS, drop=0.05, most=MOST_WRONG),
        Case("the same, few changed", PASS, drop=0.05, changed=0.06, most=MOST_WRONG),
        Case("detectable drop", FAIL, drop=detectable(300, 0.05), least=LEAST_RIGHT),
        Case(
            "detectable in one slice",
            FAIL,
            drop=detectable(44, 0.25, slices=7),
            alone=True,
            gate=margins(1.0, 0.25),
            least=LEAST_RIGHT,
        ),
        Case("no loss, margins of 0", FAIL, gate=margins(0.0, 0.0)),
        Case("margins of 0, 4 x 300, 30 %", FAIL, (300,) * 4, 0.3, gate=margins(0.0, 0.0)),
    ]


def tables(case: Case, count: int, seed: int) -> Iterator[Evidence]:
    """Evidence of `count` tables."""
    generator = np.random.default_rng(seed)
    slices = np.repeat(np.arange(len(case.sizes)), case.sizes)
    drop = np.where((slices == 0) | (not case.alone), case.drop, 0.0)
    changed = np.maximum(case.changed, drop)
    lost, won = (changed + drop) / 2, (changed - drop) / 2
    for _ in range(count):
        drawn = generator.random(len(slices))
        right = generator.random(len(slices)) < 0.75
        fell, rose = drawn < lost, (drawn >= lost) & (drawn < lost + won)
        old = np.where(fell, 1.0, np.where(rose, 1.0 - case.score, right))
        new = np.where(fell, 1.0 - case.score, np.where(rose, 1.0, right))
        yield Evidence(base=_side(0, slices, old), adapter=_side(1, slices, new))


def _side(which: int, slices: Sequence[int], scores: Sequence[float]) -> Side:
    suites: list[dict[str, Any]] = [
        {
            "id": f"s{index}",
            "slice": f"slice {part}",
            "chance": 0.25,
            "output": f"{which}",
            "score": float(score),
        }
        for index, (part, score) in enumerate(zip(slices, scores, strict=True))
    ]
    return Side(TASKS[which], suites, {}, {})


TASKS = [
    [
        {
            "id": f"t{index}",
            "prompt": "p",
            "answer": f"{which}",
            "finished": True,
            "scores": {"label": float(which)},
            "majority": {"label": float(index % 5 == 0)},
        }
        for index in range(100)
    ]
    for which in (0, 1)
]


def rate(case: Case, *, count: int, seed: int = 0, decide: Decide | None = None) -> float:
    """Share of the tables with the verdict `case.word`; `decide` is the gate's own by default."""
    judge = decide or gate.decide
    words = Counter(judge(table, case.gate).verdict for table in tables(case, count, seed))
    return words[case.word] / count


def main() -> int:
    """Print the table; 1 when a rate breaks its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=int, default=2000)
    count = parser.parse_args().tables
    print(f"{'tables of':<31}{'true drop':>10}{'items':>7}  {'verdict':<8}{'share':>7}  limit")
    broken = 0
    for case in cases():
        measured = rate(case, count=count)
        limit = f"at least {case.least}" if case.least else "none"
        limit = f"at most {case.most}" if case.most else limit
        verdict = "" if case.holds(measured) else "  BROKEN"
        broken += not case.holds(measured)
        print(
            f"{case.what:<31}{case.drop:>10.4f}{sum(case.sizes):>7}  {case.word:<8}{measured:>7.4f}"
            f"  {limit}{verdict}",
            flush=True,
        )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
