"""The memory plan against real steps on this CPU; exit code 1 where it is off.

    python bench/plan_vs_real.py                                  # the synthetic base
    python bench/plan_vs_real.py --base "$(hashtune base)" --lengths 64 128 256 --jobs 2
    python bench/plan_vs_real.py --base "$(hashtune base)" --lengths 64 --some    # bench/prove.py

For LoRA, QLoRA (NF4, double quantisation) and full fine-tuning, each kept whole and recomputed in
full, with the loss in one piece and in four chunks, at three lengths: two steps and an evaluation,
every storage followed. The rehearsal on fake tensors must give the peak of live tensor bytes within
1 %, and the closed form, without its overhead, within 10 %. fp32, AdamW, one row, all labels but
the first trained. Bytes are counted, so neither load nor threads matter. `--some` takes two
cases of each method: kept with the loss whole, and recomputed with it in chunks.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from hashtune.memory.activations import estimate
from hashtune.memory.closed_form import Workload
from hashtune.memory.rehearsal.live import Work, measured
from hashtune.memory.rehearsal.run import Settings, rehearse
from hashtune.memory.shapes import read_shape
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Activations, Batch, Method, Optim, Quantization
from hashtune.store.synthetic import build_synthetic
from hashtune.training import loss
from hashtune.training.activations import set_checkpointing
from hashtune.training.documents import attend_as
from hashtune.training.model import DTYPES, Trainee, build_trainee, quantization_config

METHODS = ("lora", "qlora", "full")
LENGTHS = (64, 128, 256)
REHEARSAL, CLOSED_FORM = 0.01, 0.10
PIECES = 4
KINDS: tuple[tuple[Any, ...], tuple[bool, ...]] = (("none", "full"), (False, True))
ADAMW = Optim(
    name="adamw",
    lr=1e-4,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    grad_clip=1.0,
    neftune_alpha=None,
    master_weights=True,
)
BATCH = Batch(micro=1, grad_accum=1, world_size=1, attention="mask", layout="rows")


@dataclass(frozen=True, slots=True)
class Case:
    """A setting to try."""

    method: str
    checkpointing: Any
    chunked: bool
    length: int

    @property
    def name(self) -> str:
        """For the table."""
        pieces = "chunks" if self.chunked else "whole"
        return f"{self.method:6} {self.checkpointing:5} {pieces:6} {self.length:5}"

    @property
    def chunk(self) -> int:
        """Positions of a chunk of the loss."""
        return self.length // PIECES if self.chunked else self.length

    @property
    def rows(self) -> list[Row]:
        """One row, all of it trained."""
        ids = [5] * self.length
        return [Row(0, ["x"], [self.length], ids, [IGNORE_INDEX, *ids[1:]])]


@dataclass(frozen=True, slots=True)
class Result:
    """Peak bytes: measured, rehearsed, by the closed form."""

    case: Case
    real: int
    rehearsed: int
    closed: int

    @property
    def off(self) -> tuple[float, float]:
        """Signed relative errors of rehearsal and closed form."""
        return self.rehearsed / self.real - 1, self.closed / self.real - 1

    @property
    def right(self) -> tuple[bool, bool]:
        """Whether each is within its limit."""
        rehearsal, closed = self.off
        return abs(rehearsal) <= REHEARSAL, abs(closed) <= CLOSED_FORM

    @property
    def line(self) -> str:
        """For the table."""
        rehearsal, closed = self.off
        marks = ["" if good else " <" for good in self.right]
        return (
            f"{self.case.name} {self.real / 1e6:10.3f} {self.rehearsed / 1e6:10.3f} "
            f"{rehearsal:+8.3%}{marks[0]} {self.closed / 1e6:10.3f} {closed:+7.1%}{marks[1]}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every case, print a line for each, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="folder of a base instead of the synthetic one")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--some", action="store_true", help="two cases of each method and length")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    wanted = parser.parse_args(arguments)
    cases = cases_of(wanted.methods, wanted.lengths, some=wanted.some)
    print(f"{'':27} real (MB)   rehearsed             closed form")
    found = []
    for result in results(wanted.base, cases, wanted.jobs):
        print(result.line, flush=True)
        found.append(result)
    good, said = verdict(found)
    print(said)
    return 0 if good else 1


def verdict(found: Sequence[Result]) -> tuple[bool, str]:
    """Whether all are within both limits, and in words."""
    first, second = (all(result.right[place] for result in found) for place in (0, 1))
    said = f"{len(found)} cases: rehearsal within {REHEARSAL:.0%}: {first}; "
    return first and second, f"{said}closed form within {CLOSED_FORM:.0%}: {second}"


def cases_of(methods: Sequence[str], lengths: Sequence[int], *, some: bool) -> list[Case]:
    """Every combination, or of each method and length two."""
    kinds = [("none", False), ("full", True)] if some else [*itertools.product(*KINDS)]
    return [
        Case(method, kept, chunked, length)
        for method, (kept, chunked), length in itertools.product(methods, kinds, lengths)
    ]


def results(base: Path | None, cases: Sequence[Case], jobs: int) -> Iterator[Result]:
    """A result for each case, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        if base is None:
            base = Path(folder)
            build_synthetic(base, seed=0)
        context = get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=quiet) as pool:
            yield from pool.map(partial(compare, base), cases)


def quiet() -> None:
    """One thread, no bars of progress."""
    torch.set_num_threads(1)
    disable_progress_bar()


def compare(base: Path, case: Case) -> Result:
    """Real, rehearsed and closed form of one case."""
    settings = settings_of(base, case)
    with chunks_of(case.chunk):
        trainee = real_trainee(base, settings, case.rows)
        work = Work(case.rows, case.rows, settings.optim, settings.batch, settings.seed)
        real = measured(trainee, work, quantised=settings.quantization.type != "none")
        del trainee, work
        rehearsal = rehearse(settings, case.rows, case.rows)
    closed = sum(estimate(workload_of(settings, case)).values())
    return Result(case, real.peak, rehearsal.peak, closed)


@contextmanager
def chunks_of(positions: int) -> Iterator[None]:
    """The loss in chunks of so many positions meanwhile."""
    before, loss.CHUNK = loss.CHUNK, positions
    try:
        yield
    finally:
        loss.CHUNK = before


def settings_of(base: Path, case: Case) -> Settings:
    """The sections of the spec."""
    fields: dict[str, Any] = dict.fromkeys(Method.model_fields)
    lora = {"variant": "lora", "r": 16, "alpha": 16.0, "dropout": 0.0, "targets": "all-linear"}
    fields |= {"type": case.method} | ({} if case.method == "full" else lora)
    kind = "nf4" if case.method == "qlora" else "none"
    return Settings(
        config=json.loads((base / "config.json").read_text(encoding="utf-8")),
        method=Method(**fields),
        quantization=Quantization(type=kind, double_quant=True),
        optim=ADAMW,
        batch=BATCH,
        activations=Activations(checkpointing=case.checkpointing, offload=False),
        precision="fp32",
        kernels="plain",
        device="cpu",
    )


def real_trainee(base: Path, settings: Settings, rows: list[Row]) -> Trainee:
    """The model with its weights, as training/start.py makes it."""
    quantised = quantization_config(settings.quantization, settings.precision)
    options: dict[str, Any] = {"quantization_config": quantised, "device_map": {"": "cpu"}}

    def load() -> Any:
        return AutoModelForCausalLM.from_pretrained(
            base,
            dtype=DTYPES["fp32"],
            attn_implementation="sdpa",
            local_files_only=True,
            **(options if quantised is not None else {}),
        ).eval()

    model = load()
    attend_as(model, settings.batch.attention, rows, settings.kernels)
    trainee = build_trainee(model, settings.method, precision="fp32", seed=0, again=load)
    set_checkpointing(trainee, settings.activations)
    return trainee


def workload_of(settings: Settings, case: Case) -> Workload:
    """The same as the closed form takes it."""
    full = case.method == "full"
    return Workload(
        shape=read_shape(settings.config),
        quantization=settings.quantization.type,
        double_quant=True,
        precision="fp32",
        optimizer="adamw",
        variant="lora",
        r=0 if full else 16,
        targets=() if full else "all-linear",
        dropout=False,
        micro=1,
        longest_row=case.length,
        trained=case.length - 1,
        masked=False,
        loss_chunk=case.chunk,
        device="cpu",
        overhead_bytes=0,
        checkpointing=case.checkpointing,
        full=full,
        accumulates=settings.batch.grad_accum > 1,
    )


if __name__ == "__main__":
    sys.exit(main())
