"""train: the adapter.

Reads the packing plan and the base, trains with exact resume ($HASHTUNE_HOME/runs/<identity>/),
writes build/train/adapter/ and build/train/curves/. Ends with the plan, or earlier when the eval
loss no longer improves (checkpoint.early_stop_patience). SIGTERM, SIGINT and the death of DVC
finish the step, checkpoint and exit 75; `dvc repro` continues to the same bits. HASHTUNE_TRACKERS
names trackers that get the curves too; they change no output.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.records import Row
from hashtune.spec.schema import Spec
from hashtune.store.added_tokens import rows_needed, token_ids
from hashtune.store.loader import home, load_base, load_tokenizer
from hashtune.store.manifest import Manifest, read_manifest
from hashtune.training import runs
from hashtune.training.adapter import WEIGHTS, write_adapter
from hashtune.training.attention import check_probe, probe_row, run_probe
from hashtune.training.loop import Loop
from hashtune.training.model import (
    Trainee,
    build_trainee,
    quantization_config,
    set_determinism,
)
from hashtune.training.plan import Plan, Settings, check_plan
from hashtune.training.proof import prove_adapter
from hashtune.training.signals import StopRequest
from hashtune.training.summary import measure, summarise
from hashtune.training.trackers import VARIABLE, Trackers, chosen

MANIFEST = Path("build/base/manifest.json")
PACK = Path("build/pack")
CODE = Path("build/code/train.json")
OUT = Path("build/train")
OUTPUTS = {
    "adapter": OUT / "adapter",
    "curves": OUT / "curves",
    "report.json": Path("reports/train.json"),
}


def run() -> None:
    """Train, or take the result of a trainer that was already at it."""
    stop = StopRequest()
    stop.install()
    spec = frame.read_spec(
        *("method", "quantization", "optim", "schedule", "batch", "precision", "seed"),
        *("determinism", "checkpoint", "tokenizer"),
    )
    folder = run_folder(spec)
    trackers = _trackers(folder)
    frame.say(f"  train identity {folder.name[:16]}")
    with runs.exclusive(folder, stop) as lock:
        if lock.waited and runs.take_result(folder, OUTPUTS):
            frame.say("train: took the result of the trainer that was already at it")
            return
        _train(spec, stop, folder, trackers)
        runs.finish(folder, OUTPUTS)


def _trackers(run: Path) -> Trackers:
    """Those that the environment names; InputError before anything is loaded."""
    folder = home() / "trackers"
    modules = chosen(os.environ.get(VARIABLE, ""), folder=folder)
    return Trackers(modules, run=run, folder=folder, say=frame.say)


def run_folder(spec: Spec) -> Path:
    """Where this spec's run keeps its state; the name is the train identity."""
    return home() / "runs" / runs.train_identity(_identity_parts(spec))


def _identity_parts(spec: Spec) -> dict[str, Any]:
    """Everything that decides the adapter's bits; not how often checkpoints are written."""
    inputs = [MANIFEST, CODE, *sorted(PACK.glob("*.parquet"))]
    return {
        "inputs": {path.as_posix(): writers.sha256_file(path) for path in inputs},
        "method": spec.method.model_dump(),
        "quantization": spec.quantization.model_dump(),
        "optim": spec.optim.model_dump(),
        "schedule": spec.schedule.model_dump(),
        "micro": spec.batch.micro,
        "precision": spec.precision,
        "added_tokens": spec.tokenizer.added_tokens,
        "seed": spec.seed,
        "determinism": spec.determinism.model_dump(),
        "select": spec.checkpoint.select,
        "eval_every_steps": spec.checkpoint.eval_every_steps,
        "early_stop_patience": spec.checkpoint.early_stop_patience,
        "max_skipped_steps": spec.checkpoint.max_skipped_steps,
    }


def read_plan() -> Plan:
    """The packing plan from build/pack/."""
    rows = [Row(**row) for row in writers.read_parquet(PACK / "train.parquet")]
    steps = [step["rows"] for step in writers.read_parquet(PACK / "steps.parquet")]
    return Plan(rows, steps, [Row(**row) for row in writers.read_parquet(PACK / "eval.parquet")])


def ready(spec: Spec) -> tuple[Trainee, Plan, Manifest]:
    """What training starts from: base with a fresh adapter, random generators seeded, the plan.

    Raises InputError for settings that do not fit the plan or the base.
    """
    set_determinism(spec.determinism)
    plan = read_plan()
    check_plan(plan, spec.schedule, spec.checkpoint)
    manifest = read_manifest(MANIFEST)
    tokens = _token_ids(manifest, spec.tokenizer.added_tokens)
    base = load_base(
        manifest,
        dtype=spec.precision,
        quantization_config=quantization_config(spec.quantization, spec.precision),
        rows=rows_needed(tokens),
    )
    trainee = build_trainee(
        base, spec.method, precision=spec.precision, seed=spec.seed, tokens=tokens
    )
    return trainee, plan, manifest


def settings_of(spec: Spec, folder: Path) -> Settings:
    """The loop's settings for a run that keeps its state in `folder`, named by its identity."""
    return Settings(
        optim=spec.optim,
        schedule=spec.schedule,
        batch=spec.batch,
        checkpoint=spec.checkpoint,
        seed=spec.seed,
        run=folder,
        identity=folder.name,
        spec=_identity_parts(spec),
    )


def _train(spec: Spec, stop: StopRequest, folder: Path, trackers: Trackers) -> None:
    trainee, plan, manifest = ready(spec)
    probe = _probe(trainee, plan)
    settings = settings_of(spec, folder)
    loop = Loop(trainee, plan, settings, OUTPUTS["curves"], stop, frame.say, trackers=trackers)
    loop.run()
    write_adapter(
        trainee.peft,
        OUTPUTS["adapter"],
        base_name=manifest.name,
        revision=str(manifest.source["revision"]),
        prove=partial(
            prove_adapter, trainee, row=plan.rows[plan.steps[0][0]], updates=loop.progress.updates
        ),
    )
    _report(loop, manifest, probe)


def _token_ids(manifest: Manifest, texts: list[str]) -> list[int]:
    """Ids of the added tokens; the tokenizer is loaded only where there are any."""
    return token_ids(load_tokenizer(manifest, texts), texts) if texts else []


def _probe(trainee: Trainee, plan: Plan) -> dict[str, object]:
    row = probe_row(plan.rows)
    if row is None:
        return {"documents_apart": "no row holds two documents"}
    probe = run_probe(trainee, row)
    check_probe(probe)
    frame.say(f"  packed documents do not see each other: leak {probe.leak:.1e}")
    return {"documents_apart": "proven before training"}


def _report(loop: Loop, manifest: Manifest, probe: dict[str, object]) -> None:
    weights = OUTPUTS["adapter"] / WEIGHTS
    report = {**summarise(loop, OUTPUTS["adapter"]), **probe}
    measured = measure(loop)
    frame.write_report("train", report)
    frame.write_machine("train", measured, belongs_to=weights)
    frame.closing_table(
        f"train: adapter over {manifest.name}",
        report | {"tokens/s": measured["tokens_per_second"]},
    )


if __name__ == "__main__":
    frame.main("train", run)
