"""What a run says of itself while it runs: curves, a line per step, and every tenth one in full.

      step 9/175  loss 1.4021
      step 10/175  loss 1.2345  lr 1.00e-03  grad norm 0.53  accuracy 0.712  entropy 0.98
        115 tokens/s, 48 trained  254 tokens/step, 98 trained  MFU 62.3 %  HFU 62.3 %  peak 1.97 GB
        skipped 0  about 320 s left

Full lines come after the first, every tenth and the last step; their rates cover the steps since
the full line before. They are kept as JSON lines in a log that no stage owns, since it holds what
this machine measured. The curves are an output and get deterministic values only.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hashtune.inspection.visible import in_a_line
from hashtune.records import Row
from hashtune.training.checkpoint import Progress
from hashtune.training.curves import Curves
from hashtune.training.guard import PlacesOf, evaluations_since_best, name_rows
from hashtune.training.rates import Gauge, Meter, peak_memory_gb, rates
from hashtune.training.step import EvalResult, StepResult
from hashtune.training.watch import Watcher
from hashtune.writers import canonical_json

LOG_EVERY = 10  # steps
SHOWN = 80  # characters of an answer
GRADIENT = {"loss": ".4f", "lr": ".2e", "grad norm": ".2f", "accuracy": ".3f", "entropy": ".2f"}


@dataclass(frozen=True, slots=True)
class Aside:
    """What a run reads and writes beside its inputs and outputs; nothing here changes a bit.

    Attributes:
        peak_tflops: of the machine that trains; None if the spec describes another one.
        log: file of the full lines; None keeps none.
        places: source lines of examples, asked for when a step is skipped.
    """

    peak_tflops: float | None = None
    log: Path | None = None
    places: PlacesOf = lambda ids: {}


@dataclass(slots=True)
class Journal:
    """Reads progress and meter, which the loop keeps, and writes down what a step adds to them.

    Attributes:
        total: steps of the plan.
        watcher: sees every point, those of a resumed checkpoint too.
        told: the meter as it was at the last full line.
        begins_after: the step of the state that the run branched from, 0 for none.
    """

    progress: Progress
    meter: Meter
    curves: Curves
    gauge: Gauge
    total: int
    say: Callable[[str], None]
    aside: Aside
    watcher: Watcher
    told: Meter = field(default_factory=Meter)
    begins_after: int = 0

    def start(self) -> None:
        """Catch up with the progress and say how utilisation is counted; a run at its first
        step starts its log anew."""
        if self.aside.log is not None and self.progress.step == self.begins_after:
            self.aside.log.unlink(missing_ok=True)
        for point in self.progress.points:
            self.watcher.see(point)
        if self.gauge.peak_tflops is not None:
            self.say(f"  MFU of {self.gauge.peak_tflops:g} TFLOP/s. {self.gauge.work.convention}")

    def step(self, result: StepResult, lr: float) -> None:
        """Record the step that progress.step names."""
        step = self.progress.step
        if result.applied:
            self._add(
                {
                    "step": step,
                    "train/loss": result.loss,
                    "train/accuracy": result.accuracy,
                    "train/entropy": result.entropy,
                    "train/grad_norm": result.grad_norm,
                    "train/lr": lr,
                }
            )
        if step in (self.begins_after + 1, self.total) or step % LOG_EVERY == 0:
            self._full(result, lr)
        else:
            self.say(f"  step {step}/{self.total}  loss {result.loss:.4f}")

    def skip(self, rows: Sequence[Row]) -> str:
        """Count the step as skipped and return the names of what it saw."""
        self.progress.skipped.append(self.progress.step)
        named = name_rows(rows, self.aside.places)
        self.say(f"  step {self.progress.step} skipped, not finite; {named}")
        return named

    def evaluation(
        self, result: EvalResult, samples: Sequence[dict[str, Any]], *, patience: int | None
    ) -> None:
        """Record an evaluation; with a patience also how many there are since the best."""
        step = self.progress.step
        point: dict[str, Any] = {"step": step, "eval/loss": result.loss}
        point["eval/accuracy"] = result.accuracy
        if patience is not None:
            point["eval/since_best"] = evaluations_since_best([*self.progress.points, point])
        self._add(point)
        self.progress.samples += samples
        self.say(f"  step {step}  eval loss {result.loss:.4f}  accuracy {result.accuracy:.3f}")
        for sample in samples:
            self.say(f"    {sample['example']}")
            self.say(f"      answer  {in_a_line(sample['answer'], most=SHOWN)}")
            self.say(f"      data    {in_a_line(sample['reference'], most=SHOWN)}")

    def look_back(self, loss: float | None, *, largest: float) -> None:
        """Say what the final weights give away: their largest value, and the loss of the first
        step's rows."""
        for signal in self.watcher.look_back(loss, largest=largest, step=self.progress.step):
            self.say(f"  signal: {signal}")

    def _add(self, point: dict[str, Any]) -> None:
        self.progress.points.append(point)
        self.curves.log(point)
        for signal in self.watcher.see(point):
            self.say(f"  signal: {signal}")

    def _full(self, result: StepResult, lr: float) -> None:
        recent = rates(self.meter.since(self.told), self.gauge)
        self.told = replace(self.meter)
        peak, skipped = peak_memory_gb(), len(self.progress.skipped)
        values = {
            "loss": result.loss,
            "lr": lr,
            "grad norm": result.grad_norm,
            "accuracy": result.accuracy,
            "entropy": result.entropy,
        }
        shown = "  ".join(f"{name} {value:{GRADIENT[name]}}" for name, value in values.items())
        left = self.meter.seconds / self.meter.steps * (self.total - self.progress.step)
        self.say(f"  step {self.progress.step}/{self.total}  {shown}")
        self.say(f"    {speed_line(recent)}  peak {peak:.2f} GB")
        self.say(f"    skipped {skipped}  about {left:.0f} s left")
        line = {name.replace(" ", "_"): _finite(value) for name, value in values.items()}
        line |= {"step": self.progress.step, "skipped": skipped, "peak_memory_gb": peak, **recent}
        if self.aside.log is not None:
            self.aside.log.parent.mkdir(parents=True, exist_ok=True)
            with self.aside.log.open("a", encoding="utf-8", newline="\n") as file:
                file.write(canonical_json(line, indent=None))


def speed_line(rates: dict[str, Any]) -> str:
    """Tokens per second and step, and utilisation where it is known, for people."""
    parts = [
        f"{rates['tokens_per_second']:.0f} tokens/s, "
        f"{rates['trained_tokens_per_second']:.0f} trained",
        f"{rates['tokens_per_step']:.0f} tokens/step, "
        f"{rates['trained_tokens_per_step']:.0f} trained",
    ]
    for name in ("mfu", "hfu"):
        if rates[name] is not None:
            parts.append(f"{name.upper()} {100 * rates[name]:.1f} %")
    return "  ".join(parts)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
