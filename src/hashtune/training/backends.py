"""One small class for each tracker: open a run or go on with it, log values, end.

The module is imported by the caller, by name: a static import would make `code` count the package
among those that decide the adapter, and installing one would retrain.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hashtune.errors import Finding, nearest

VARIABLE = "HASHTUNE_TRACKERS"
PROJECT = "hashtune"
WANDB_OFF = (
    "disable_git",
    "disable_code",
    "x_disable_stats",
    "x_disable_meta",
    "x_disable_machine_info",
)
# Seconds between writes of W&B's file: a kill loses what was given since. Its own default is 15.
WANDB_FLUSH = 1.0


@dataclass(frozen=True, slots=True)
class Session:
    """The run's name, the same when it is resumed; its train identity; the folder on this
    machine."""

    name: str
    identity: str
    folder: Path


class Tracker(Protocol):
    """An open run of a tracker."""

    def log(self, values: Mapping[str, float], step: int, number: int) -> None:
        """Log the values of a step, which are point `number` (from 1) of the run."""

    def end(self) -> None:
        """Close the run."""


class TensorBoard:
    """Event files, flushed after each point: what is counted as given must survive a kill."""

    def __init__(self, module: Any, session: Session) -> None:
        self._writer = module.SummaryWriter(
            log_dir=str(session.folder / "tensorboard" / session.name)
        )

    def log(self, values: Mapping[str, float], step: int, number: int) -> None:
        """Log the values of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self) -> None:
        """Close the run."""
        self._writer.close()


class Wandb:
    """Offline unless WANDB_MODE says otherwise; without Git, code, console and machine facts.

    The step is a value of its own, W&B's is the point's number: W&B drops values whose own step is
    not above the last one, train and eval have points of one step, and offline a resumed run would
    count from 0 again.
    """

    def __init__(self, module: Any, session: Session) -> None:
        settings = module.Settings(
            console="off",
            silent=True,
            host="",
            x_save_requirements=False,
            x_transaction_log_flush_interval=WANDB_FLUSH,
            **dict.fromkeys(WANDB_OFF, True),
        )
        session.folder.mkdir(parents=True, exist_ok=True)
        self._run = module.init(
            project=PROJECT,
            id=session.name,
            name=session.name,
            resume="allow",
            dir=str(session.folder),
            config={"train_identity": session.identity},
            settings=settings,
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, values: Mapping[str, float], step: int, number: int) -> None:
        """Log the values of a step."""
        self._run.log({**values, "step": step}, step=number, commit=True)

    def end(self) -> None:
        """Close the run."""
        self._run.finish()


class Mlflow:
    """The server of MLFLOW_TRACKING_URI, else a local SQLite file.

    Through the client, not the fluent interface, which tags a run with user, path and commit.
    """

    def __init__(self, module: Any, session: Session) -> None:
        local = not os.environ.get("MLFLOW_TRACKING_URI")
        session.folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{session.folder.resolve()}/mlflow.db" if local else None
        self._client = module.MlflowClient(tracking_uri=uri)
        found = self._client.get_experiment_by_name(PROJECT)
        artifacts = (session.folder.resolve() / "mlflow").as_uri() if local else None
        experiment = (
            self._client.create_experiment(PROJECT, artifact_location=artifacts)
            if found is None
            else found.experiment_id
        )
        runs = self._client.search_runs(
            [experiment], filter_string=f"attributes.run_name = '{session.name}'"
        )
        run = (
            runs[0]
            if runs
            else self._client.create_run(
                experiment, run_name=session.name, tags={"train_identity": session.identity}
            )
        )
        self._run = run.info.run_id

    def log(self, values: Mapping[str, float], step: int, number: int) -> None:
        """Log the values of a step."""
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def end(self) -> None:
        """Close the run."""
        self._client.set_terminated(self._run)


class Trackio:
    """Local files unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says otherwise."""

    def __init__(self, module: Any, session: Session) -> None:
        self._run = module.init(
            project=PROJECT,
            name=session.name,
            resume="allow",
            config={"train_identity": session.identity},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, values: Mapping[str, float], step: int, number: int) -> None:
        """Log the values of a step."""
        self._run.log(dict(values), step=step)

    def end(self) -> None:
        """Close the run."""
        self._run.finish()


@dataclass(frozen=True, slots=True)
class Kind:
    """A tracker's module and class, and environment variables that are set where they are not."""

    module: str
    open: Callable[[Any, Session], Tracker]
    environment: Callable[[Path], Mapping[str, str]]


KINDS: Mapping[str, Kind] = {
    "tensorboard": Kind("torch.utils.tensorboard", TensorBoard, lambda folder: {}),
    "wandb": Kind(
        "wandb",
        Wandb,
        lambda folder: {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"},
    ),
    "mlflow": Kind("mlflow", Mlflow, lambda folder: {"MLFLOW_DISABLE_TELEMETRY": "true"}),
    "trackio": Kind("trackio", Trackio, lambda folder: {"TRACKIO_DIR": str(folder / "trackio")}),
}


def named(value: str) -> list[str]:
    """The trackers that the variable names, with commas between them."""
    return [name for name in map(str.strip, value.split(",")) if name]


def unknown_trackers(value: str) -> list[Finding]:
    """A finding for each name that is no tracker's; nothing is imported."""
    return [
        Finding("tracker", f"{VARIABLE} names {name!r}", fix=nearest(name, KINDS))
        for name in named(value)
        if name not in KINDS
    ]
