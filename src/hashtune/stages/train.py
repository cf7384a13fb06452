"""train: the adapter, or with method.type full a whole set of weights in its place.

Reads the packing plan and the base, and where they are pinned the adapter to continue from
(base_model.init_adapter) and the state of another run's stable phase (schedule.branch_from); trains
with exact resume ($HASHTUNE_HOME/runs/<identity>/), writes build/train/adapter/, curves/, stable/
(the state that checkpoint.keep_stable asks for, for branches) and samples.jsonl (answers to a few
eval prompts at each evaluation). Ends with the plan, or earlier when the eval loss no longer
improves (checkpoint.early_stop_patience). SIGTERM, SIGINT, SIGHUP and the death of DVC finish the
step, checkpoint and exit 75; `dvc repro` continues to the same bits. SIGUSR1 checkpoints after the
step and goes on. HASHTUNE_TRACKERS names trackers that get the curves too; they change no output.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.errors import Stopped
from hashtune.spec.hardware import peak_of
from hashtune.spec.precision import rounding_warnings
from hashtune.spec.schema import Layout, Spec
from hashtune.spec.workload import workload_sha256
from hashtune.store.loader import home
from hashtune.store.manifest import read_manifest
from hashtune.training import runs
from hashtune.training.adapter import weights_file, write_adapter
from hashtune.training.attention import (
    attention_backend,
    check_probe,
    probe_row,
    run_probe,
)
from hashtune.training.backends import VARIABLE
from hashtune.training.checkpoint import at_end
from hashtune.training.first_changes import Changes
from hashtune.training.fused.check import check_fused, compare_fused, fused_counts
from hashtune.training.guard import check_updates
from hashtune.training.handed import unrecorded
from hashtune.training.identity import identity_parts, init_sha256
from hashtune.training.journal import Aside, speed_line
from hashtune.training.loop import Loop
from hashtune.training.memory_probe import measure_steps
from hashtune.training.model import Trainee
from hashtune.training.origins import source_lines
from hashtune.training.out_of_memory import Account
from hashtune.training.phases import SetPhase, nobody
from hashtune.training.plan import Plan, Settings, row_to_prove
from hashtune.training.planned import check_margin, compare, memory_lines, read_planned
from hashtune.training.proof import prove_adapter
from hashtune.training.signals import StopRequest
from hashtune.training.space import full_disk
from hashtune.training.stable import hand_out
from hashtune.training.start import Start, begin, read_plan, sampler_of
from hashtune.training.summary import measure, summarise
from hashtune.training.trackers import Trackers, chosen
from hashtune.training.unfinished import unfinished

MANIFEST = Path("build/base/manifest.json")
PACK = Path("build/pack")
CODE = Path("build/code/train.json")
DVC_LOCK = Path("dvc.lock")  # tells whether DVC lived to record a finished run
OTHER = "trainer that was already at it"
UNRECORDED = "run that ended here before DVC could record it"
OUT = Path("build/train")
PREPARED = Path("build/prepare/train.parquet")  # for the source lines of a skipped step only
PLANNED = Path("reports/plan.json")  # only told, and may stop a run
LOG = frame.MACHINE / "train_log.jsonl"
OUTPUTS = {
    "adapter": OUT / "adapter",
    "curves": OUT / "curves",
    "samples.jsonl": OUT / "samples.jsonl",
    "stable": OUT / "stable",
    "report.json": Path("reports/train.json"),
}


def run() -> None:
    """Train, or take the result of a trainer that was already at it."""
    stop = StopRequest()
    stop.install()
    spec = frame.read_spec(
        *("method", "quantization", "optim", "schedule", "batch", "precision", "seed", "kernels"),
        *("determinism", "checkpoint", "tokenizer", "base_model", "activations", "hardware"),
        *("device", "init_seed", "plan"),
    )
    folder = run_folder(spec)
    trackers = _trackers(folder)
    frame.say(f"  train identity {folder.name[:16]}")
    with runs.exclusive(folder, stop) as lock:
        lost = unrecorded(folder, DVC_LOCK, report="report.json")
        if (lock.waited or lost) and runs.take_result(folder, OUTPUTS):
            runs.clear(folder)
            frame.say(f"train: took the result of the {UNRECORDED if lost else OTHER}")
            return
        settings = settings_of(spec, folder)
        for line in unfinished(folder, {"spec": settings.spec, "code": settings.code}):
            frame.say(f"  {line}")
        account = _account(spec)
        with full_disk(folder), account.refusal():
            _train(spec, stop, folder, trackers, account)
            if stop:  # DVC may be gone: without its record the next run needs the checkpoint
                raise Stopped(f"{stop.signal} after the last step; `dvc repro` ends the run")
            runs.finish(folder, OUTPUTS, lock=DVC_LOCK)


def _trackers(run: Path) -> Trackers:
    """Those that the environment names; InputError before anything is loaded."""
    folder = home() / "trackers"
    modules = chosen(os.environ.get(VARIABLE, ""), folder=folder)
    return Trackers(modules, run=run, folder=folder, say=frame.say)


def run_folder(spec: Spec) -> Path:
    """Where this spec's run keeps its state; the name is the train identity."""
    return home() / "runs" / runs.train_identity(_identity_parts(spec))


def _identity_parts(spec: Spec) -> dict[str, Any]:
    """Everything that decides the adapter's bits."""
    return identity_parts(spec, [MANIFEST, CODE, *sorted(PACK.glob("*.parquet"))])


def ready(spec: Spec, phase: SetPhase = nobody) -> Start:
    """What training starts from; `hashtune step N --run` starts from the same."""
    return begin(
        *(spec, read_plan(PACK), read_manifest(MANIFEST)),
        root=Path.cwd(),
        parts=_identity_parts(spec),
        code=writers.read_json(CODE),
        phase=phase,
    )


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
        code=writers.read_json(CODE),
    )


def _train(
    spec: Spec, stop: StopRequest, folder: Path, trackers: Trackers, account: Account
) -> None:
    begun = ready(spec, account.position.enter)
    for warning in rounding_warnings(spec.optim, micro_batches=spec.batch.grad_accum):
        frame.say(f"  warning: {warning}")
    trainee, plan, manifest = begun.trainee, begun.plan, begun.manifest
    facts: dict[str, object] = {"init_adapter": init_sha256(spec)}
    facts["branch"] = begun.branch.facts() if begun.branch else None
    facts |= {"recomputed_blocks": begun.recomputed, "route": trainee.route}
    facts |= _probe(trainee, plan, spec.batch.layout) | _fused(trainee, plan)
    loop = Loop(
        *(trainee, plan, settings_of(spec, folder), OUTPUTS["curves"], stop, frame.say),
        aside=_aside(spec, trainee),
        sampler=sampler_of(spec, manifest, plan),
        trackers=trackers,
        branch=begun.branch,
        position=account.position,
    )
    _first_steps(loop, spec, account)
    loop.run()
    account.position.enter("proof")
    check_updates(loop.progress.updates, steps=loop.progress.step)
    kept = facts["kept_stable"] = hand_out(folder, OUTPUTS["stable"])
    if (step := spec.checkpoint.keep_stable) is not None and kept is None:
        frame.say(f"  training ended before step {step}: no state is kept")
    writers.write_jsonl(OUTPUTS["samples.jsonl"], loop.progress.samples)
    write_adapter(
        trainee.peft,
        OUTPUTS["adapter"],
        base_name=manifest.name,
        revision=str(manifest.source["revision"]),
        tokens=begun.tokens,
        prove=partial(
            prove_adapter,
            trainee,
            row=row_to_prove(plan.rows[number] for step in plan.steps for number in step),
            updates=loop.progress.updates,
            start=begun.adapter,
        ),
    )
    memory = compare(account.planned, account.measured, margin=spec.plan.margin)
    _report(loop, begun, facts, memory)


def _account(spec: Spec) -> Account:
    """What is expected of the run's memory. No param of this stage: it can only stop a run."""
    account = Account(Changes(spec))
    if spec.plan.probe_steps and spec.hardware.device == spec.device:
        inputs = [MANIFEST, *sorted(PACK.glob("*.parquet"))]
        account.planned, line = read_planned(PLANNED, workload_sha256(spec, inputs))
        frame.say(f"  {line}")
    return account


def _first_steps(loop: Loop, spec: Spec, account: Account) -> None:
    """The probe, unless nothing is left to train."""
    if not spec.plan.probe_steps or at_end(loop.settings.run, len(loop.plan.steps)):
        return
    with account.probe():
        account.measured = measure_steps(
            *(loop.trainee, loop.plan, loop.settings),
            steps=spec.plan.probe_steps,
            stop=lambda: bool(loop.stop),
            tell=account.position.enter,
        )
    if account.measured is None:
        return
    for line in memory_lines(account.planned, account.measured):
        frame.say(f"  {line}")
    check_margin(
        account.planned,
        account.measured,
        margin=spec.plan.margin,
        changes=account.changes,
    )


def _aside(spec: Spec, trainee: Trainee) -> Aside:
    """What is only told: no param of this stage in dvc.yaml and no part of the identity."""
    same = spec.hardware.device == trainee.device.type
    return Aside(
        peak_tflops=peak_of(spec.hardware.peak_tflops, spec.precision) if same else None,
        log=LOG,
        places=partial(source_lines, prepared=PREPARED),
    )


def _probe(trainee: Trainee, plan: Plan, layout: Layout) -> dict[str, object]:
    row, backend = probe_row(plan.rows, layout), attention_backend(trainee)
    frame.say(f"  attention backend {backend}")
    if row is None:
        return {"attention": backend, "documents_apart": "no row holds two documents"}
    probe = run_probe(trainee, row, layout)
    check_probe(probe)
    frame.say(f"  packed documents do not see each other: leak {probe.leak:.1e}")
    return {"attention": backend, "documents_apart": "proven before training"}


def _fused(trainee: Trainee, plan: Plan) -> dict[str, object]:
    counts = fused_counts(trainee)
    if not any(counts.values()):
        return {"fused": "nothing"}
    difference = compare_fused(trainee, row_to_prove(plan.rows))
    check_fused(difference, trainee.precision)
    frame.say(
        f"  fused parts give the plain model's values: loss off by {difference.loss:.1e}, "
        f"gradients by at most {difference.gradient:.1e}"
    )
    return {"fused": counts}


def _report(
    loop: Loop, begun: Start, facts: dict[str, object], memory: dict[str, Any] | None
) -> None:
    report = {**summarise(loop, OUTPUTS["adapter"]), **facts}
    measured = measure(loop) | {"memory": memory}
    signals = [signal.name for signal in loop.journal.watcher.fired]
    frame.write_report("train", report)
    frame.write_machine("train", measured, belongs_to=weights_file(OUTPUTS["adapter"]))
    frame.closing_table(
        f"train: {'all weights of' if loop.trainee.full else 'adapter over'} {begun.manifest.name}",
        report | {"signals": ", ".join(signals) or "none", "speed": speed_line(measured)},
    )


if __name__ == "__main__":
    frame.main("train", run)
