"""The memory plan beside published measurements, and three other tools beside it.

    PYTHONPATH=src python bench/plan_vs_published.py [--rows 28 33] [--jobs 2] [--write FILE]

Each point is rehearsed with the measured system's own step (published/litgpt_step.py,
published/metamath.py), on fake tensors, and estimated by the closed form, which calls no rehearsal.
No figure of a row went into either. Exit code 1 when the rehearsal's median absolute error is above
5 % or its 90th percentile above 12 %, or when a run that ended out of memory is said to fit.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from published.predict import Prediction, predict
from published.rows import FURTHER, POINTS, Point
from published.score import summary, violations
from published.table import errors_of, page, wrong_verdicts

MEDIAN, P90 = 0.05, 0.12


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict, print, judge."""
    options = _options(arguments)
    points = [p for p in (*POINTS, *FURTHER) if not options.rows or p.row in options.rows]
    predictions = list(_predictions(points, options.jobs))
    found = list(zip(points, predictions, strict=True))
    text = page(found)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    errors = errors_of(found, lambda prediction: prediction.rehearsal)
    faults = violations(summary(errors), median=MEDIAN, p90=P90) if errors else []
    faults += wrong_verdicts(found)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="*", help="rows of the file, by default all")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--write", type=Path, help="also write the page to this file")
    return parser.parse_args(arguments)


def _predictions(points: Sequence[Point], jobs: int) -> Iterator[Prediction]:
    if jobs == 1:
        yield from map(predict, points)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(predict, points)


if __name__ == "__main__":
    sys.exit(main())
