"""hashtune step N --run: forward and backward of the step once more, with torch."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from hashtune import frame
from hashtune.inspection.sheets import Sheet
from hashtune.inspection.steps import Origin
from hashtune.spec.load import read_spec
from hashtune.spec.methods import FULL
from hashtune.stages import train
from hashtune.training.rerun import Again, Rerun, take_adapter
from hashtune.training.signals import StopRequest

CURVE = train.OUTPUTS["curves"] / "plots/metrics/train/loss.tsv"


def run_again(number: int, adapter: Path | None, where: Mapping[str, Origin]) -> Sheet:
    """Run the step in memory, with the weights it had or with those of `adapter`."""
    spec = read_spec()
    begun = train.ready(spec)
    trainee = begun.trainee
    settings = train.settings_of(spec, train.run_folder(spec))
    curves = train.OUTPUTS["curves"]
    loop = Rerun(
        *(trainee, begun.plan, settings, curves, StopRequest(), frame.say), branch=begun.branch
    )
    if adapter is not None:
        take_adapter(trainee, adapter)
    again = loop.again(number, _ticks, exact=adapter is None)
    facts = [_start(number, adapter, again, spec.method.type)]
    facts += _figures(number, again, compare=adapter is None)
    facts.append("rows and documents without dropout:")
    for row in again.rows:
        facts.append(f"row {row.row}: loss {row.loss:.6g}")
        facts += [f"  {name}: loss {loss:.6g}, {where[name]}" for name, loss in row.documents]
    return Sheet(f"step {number} run again", facts)


def _ticks(steps: range) -> Iterator[int]:
    return frame.progress(steps, total=len(steps), label="steps before it")


def _start(number: int, adapter: Path | None, again: Again, method: str) -> str:
    """Where the weights came from; full fine-tuning has no adapter, and starts from the base."""
    what = "weights" if method == FULL else "adapter"
    if adapter is not None:
        return f"with the {what} {adapter}; dropout is not drawn as it was in training"
    kind = "state of the branch" if again.branched else "checkpoint"
    origin = f"from the {kind} after step {again.start}" if again.start else ""
    between = ""
    if again.start + 1 < number:
        last = number - 1
        steps = f"step {last}" if again.start + 1 == last else f"steps {again.start + 1} to {last}"
        between = f", {steps} trained again in memory"
    fresh = "from the pinned base" if method == FULL else "from the fresh adapter"
    return (origin or fresh) + between


def _figures(number: int, again: Again, *, compare: bool) -> list[str]:
    result = again.result
    finite = "finite" if result.applied else "not finite: training skips it"
    figures = (
        f"loss {result.loss!r}, gradient norm {result.grad_norm:.6g} before clipping, "
        f"learning rate {again.lr:.3g}, accuracy {result.accuracy:.3f}"
    )
    if not compare:
        return [figures.replace(f", learning rate {again.lr:.3g}", ""), finite]
    return [figures, f"{finite}; {train.OUTPUTS['curves']} {_recorded(number, result.loss)}"]


def _recorded(number: int, loss: float) -> str:
    """What the curve of the last training run says of this step's loss."""
    found = _curve().get(number)
    if found is None:
        return "has no loss of this step"
    if found == loss:
        return "has the same loss, bit for bit"
    return f"has another loss, {found!r}: it is of other settings, code or another machine"


def _curve() -> dict[int, float]:
    if not CURVE.is_file():
        return {}
    with CURVE.open(encoding="utf-8", newline="") as file:
        return {
            int(row["step"]): float(row["loss"]) for row in csv.DictReader(file, delimiter="\t")
        }
