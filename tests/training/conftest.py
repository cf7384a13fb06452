"""A tiny random base, a fresh trainee over it, and a small plan: what the training tests share."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.precision import stored_type
from hashtune.spec.schema import Batch, Checkpoint, Method, Optim, Quantization, Schedule
from hashtune.store.synthetic import build_synthetic
from hashtune.training.loop import Loop
from hashtune.training.model import DTYPES, Trainee, build_trainee, quantization_config
from hashtune.training.plan import Plan, Settings
from hashtune.training.samples import Sampler
from hashtune.training.signals import StopRequest


@pytest.fixture(autouse=True)
def outside_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else dvclive opens this project's own Git repository, and leaves its packs open."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training-base")
    build_synthetic(folder, seed=0)
    return folder


@pytest.fixture(scope="session")
def make_base(base_folder: Path) -> Callable[..., Any]:
    """A fresh base each call: PEFT changes the modules in place."""

    def make(dtype: torch.dtype = torch.float32, stored: Any = "none") -> Any:
        from transformers import AutoModelForCausalLM

        precision = next(name for name, value in DTYPES.items() if value == dtype)
        kind = Quantization(type=stored, double_quant=stored == "nf4")
        return AutoModelForCausalLM.from_pretrained(
            base_folder,
            dtype=dtype,
            attn_implementation="sdpa",
            local_files_only=True,
            quantization_config=quantization_config(kind, precision),
        ).eval()

    return make


@pytest.fixture(scope="session")
def make_trainee(make_base: Callable[..., Any]) -> Callable[..., Trainee]:
    def make(
        *,
        seed: int = 7,
        dropout: float = 0.0,
        precision: str = "fp32",
        targets: Any = ("q_proj", "v_proj"),
        variant: Any = "lora",
        master_weights: bool = True,
    ) -> Trainee:
        if not isinstance(targets, str):
            targets = list(targets)
        method = Method(
            type="lora",
            variant=variant,
            r=2,
            alpha=4.0,
            dropout=dropout,
            targets=targets,
            virtual_tokens=None,
        )
        base = make_base(DTYPES[stored_type(precision)])
        return build_trainee(
            base, method, precision=precision, seed=seed, master_weights=master_weights
        )

    return make


@pytest.fixture(scope="session")
def make_soft(make_base: Callable[..., Any]) -> Callable[..., Trainee]:
    """A trainee with a prompt or prefix of three virtual tokens."""

    def make(
        kind: Any,
        *,
        precision: str = "fp32",
        seed: int = 7,
        stored: str = "none",
        master_weights: bool = True,
    ) -> Trainee:
        none: dict[str, Any] = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets"))
        base = make_base(DTYPES[precision], stored)
        method = Method(type=kind, **none, virtual_tokens=3)
        return build_trainee(
            base, method, precision=precision, seed=seed, master_weights=master_weights
        )

    return make


@pytest.fixture(scope="session")
def make_full(make_base: Callable[..., Any]) -> Callable[..., Trainee]:
    """A trainee of method.type full: the base itself."""

    def make(*, precision: str = "fp32", dtype: torch.dtype = torch.float32) -> Trainee:
        fields = ("variant", "r", "alpha", "dropout", "targets", "virtual_tokens")
        method = Method(type="full", **dict.fromkeys(fields))
        base, again = make_base(dtype), partial(make_base, dtype)
        return build_trainee(base, method, precision=precision, seed=7, again=again)

    return make


def row_of(number: int, lengths: list[int]) -> Row:
    """Deterministic tokens (never 0..2); the first label of each document is -100."""
    ids = [3 + (37 * number + 11 * place + place * place) % 500 for place in range(sum(lengths))]
    labels, start = list(ids), 0
    for length in lengths:
        labels[start] = IGNORE_INDEX
        start += length
    return Row(number, [f"e{number}.{i}" for i in range(len(lengths))], lengths, ids, labels)


@pytest.fixture(scope="session")
def make_row() -> Callable[[int, list[int]], Row]:
    return row_of


@pytest.fixture(scope="session")
def plan() -> Plan:
    """Six rows, two a step, six steps (two epochs in different orders), one eval row."""
    rows = [
        row_of(n, lengths) for n, lengths in enumerate([[5, 4], [7], [3, 3, 2], [6], [4, 4], [8]])
    ]
    return Plan(rows, [[0, 1], [2, 3], [4, 5], [3, 0], [5, 2], [1, 4]], [row_of(9, [6, 5])])


OPTIM = {
    "name": "adamw",
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.01,
    "grad_clip": 1.0,
    "neftune_alpha": None,
    "master_weights": True,
}
BATCH: dict[str, Any] = {
    "micro": 1,
    "grad_accum": 2,
    "world_size": 1,
    "attention": "mask",
    "layout": "rows",
}
SCHEDULE = {
    "name": "cosine",
    "warmup_fraction": 0.3,
    "warmup_steps": None,
    "min_lr_ratio": 0.1,
    "decay": None,
    "decay_fraction": None,
    "decay_start": None,
    "branch_from": None,
}


@pytest.fixture(scope="session")
def make_optim() -> Callable[..., Optim]:
    def make(**changes: Any) -> Optim:
        return Optim(**{**OPTIM, **changes})

    return make


@pytest.fixture
def make_loop(
    tmp_path: Path,
    plan: Plan,
    make_optim: Callable[..., Optim],
    make_trainee: Callable[..., Trainee],
) -> Callable[..., Loop]:
    """A loop over a fresh model; the same `run` folder resumes. `stop_after` sends SIGTERM."""

    def make(
        run: str,
        *,
        stop_after: int | None = None,
        dropout: float = 0.0,
        identity: str = "a" * 64,
        trainee: Trainee | None = None,
        said: list[str] | None = None,
        the_plan: Plan = plan,
        optim: dict[str, Any] | None = None,
        batch: dict[str, Any] | None = None,
        sampler: Sampler | None = None,
        **checkpoint: Any,
    ) -> Loop:
        stop = StopRequest()
        cadence = {
            "every_steps": 2,
            "keep_last": 1,
            "eval_every_steps": 2,
            "select": "last",
            "early_stop_patience": None,
            "max_skipped_steps": 0,
            "samples": 0,
            "keep_stable": None,
        }

        def say(text: str) -> None:
            if said is not None:
                said.append(text)
            if stop_after is not None and text.startswith(f"  step {stop_after}/"):
                stop.signal = "SIGTERM"

        settings = Settings(
            optim=make_optim(**(optim or {})),
            schedule=Schedule(**SCHEDULE),
            batch=Batch(**{**BATCH, **(batch or {})}),
            checkpoint=Checkpoint(**{**cadence, **checkpoint}),
            seed=7,
            run=tmp_path / run,
            identity=identity,
            spec={"note": "the spec text"},
            code={},
        )
        trainee = trainee or make_trainee(dropout=dropout)
        curves = tmp_path / f"curves-{run}"
        return Loop(trainee, the_plan, settings, curves, stop, say, sampler=sampler or Sampler())

    return make
