"""The memory plan beside published measurements, and three other tools beside it.

    PYTHONPATH=src python bench/plan_vs_published.py [--rows 28 33] [--jobs 2] [--write PAGE]
        [--figures FILE] [--blocks transformers]

Each point is rehearsed with the measured system's own step (published/litgpt_step.py,
published/metamath.py), on fake tensors, and estimated by the closed form, which calls no rehearsal.
No figure of a row went into either. Exit code 1 when the rehearsal's median absolute error is above
5 % or its 90th percentile above 12 %, or when a run that ended out of memory is said to fit.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from published.predict import Prediction, predict, with_transformers
from published.rows import FURTHER, POINTS, Point
from published.score import signed_error, summary, violations
from published.table import errors_of, page, wrong_verdicts
from published.transformers_step import answers

MEDIAN, P90 = 0.05, 0.12


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict, print, judge."""
    options = _options(arguments)
    points = [p for p in (*POINTS, *FURTHER) if not options.rows or p.row in options.rows]
    if options.blocks == "transformers":
        return _blocks([point for point in points if answers(point.run)], options.jobs)
    found = list(_found(points, options))
    text = page(found)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    faults = verdict(found)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def verdict(found: Sequence[tuple[Point, Prediction]]) -> list[str]:
    """Limits that are not kept, by all points or by those of the file's rows alone, and runs out of
    memory that are said to fit; empty when all is well."""
    further, faults = {point.name for point in FURTHER}, wrong_verdicts(found)
    listed = [pair for pair in found if pair[0].name not in further]
    for points in (found, listed):
        if errors := errors_of(points, lambda prediction: prediction.rehearsal):
            faults += violations(summary(errors), median=MEDIAN, p90=P90)
    return faults


def _blocks(points: Sequence[Point], jobs: int) -> int:
    """LitGPT's LoRA runs with transformers' blocks: errors, and no limit on them."""
    errors = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for point, said in zip(points, pool.map(with_transformers, points), strict=True):
            if point.measured is None:
                print(f"{point.name}: {said / 1e9:.2f} GB, ended out of memory")
                continue
            errors.append(signed_error(said, point.measured))
            print(f"{point.name}: {said / 1e9:.2f} GB, {errors[-1]:+.1%}")
    print(summary(errors))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="*", help="rows of the file, by default all")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--write", type=Path, help="also write the page to this file")
    parser.add_argument(
        "--blocks",
        choices=["transformers"],
        help="LitGPT's LoRA runs with transformers' blocks in LitGPT's place, and nothing else",
    )
    parser.add_argument("--figures", type=Path, help="keep predictions there, and read them there")
    return parser.parse_args(arguments)


def _found(
    points: Sequence[Point], options: argparse.Namespace
) -> Iterator[tuple[Point, Prediction]]:
    """Predictions in the points' order; those in the file of figures are not made again."""
    kept = _kept(options.figures)
    missing = [point for point in points if point.name not in kept]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for point, made in zip(missing, pool.map(predict, missing), strict=True):
            kept[point.name] = made
            if options.figures:
                plain = {name: asdict(prediction) for name, prediction in kept.items()}
                options.figures.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    for point in points:
        yield point, kept[point.name]


def _kept(figures: Path | None) -> dict[str, Prediction]:
    if figures is None or not figures.is_file():
        return {}
    plain = json.loads(figures.read_text(encoding="utf-8"))
    return {name: Prediction(**prediction) for name, prediction in plain.items()}


if __name__ == "__main__":
    sys.exit(main())
