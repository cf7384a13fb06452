"""Trackers: each point once, whatever is killed; no failure and no random draw reaches training.

The packages are not installed here: the fakes have the part of their interface that is used, as
bench/trackers.py proves with the packages themselves.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hashtune import writers
from hashtune.errors import InputError, Stopped
from hashtune.training.curves import Curves
from hashtune.training.loop import Loop
from hashtune.training.trackers import Trackers, chosen

MakeLoop = Callable[..., Loop]
ALL = "tensorboard,wandb,mlflow,trackio"
FIRST = {"step": 1, "train/loss": 2.5, "train/lr": 1e-3}
EVAL = {"step": 1, "eval/loss": 3.0}
SECOND = {"step": 2, "train/loss": 2.0, "train/lr": 5e-4}


class Fake:
    """Four packages that write down what they are told."""

    def __init__(self) -> None:
        self.logged: dict[str, list[tuple[str, float, int]]] = {}
        self.opened: dict[str, list[Any]] = {}
        self.ended: list[str] = []
        self.numbers: list[int] = []  # W&B's own steps
        self.fail: dict[str, Exception] = {}
        self.runs: list[Any] = []

    def add(self, kind: str, name: str, value: float, step: int) -> None:
        if kind in self.fail:
            raise self.fail[kind]
        random.random()
        np.random.rand()
        torch.rand(1)
        self.logged.setdefault(kind, []).append((name, value, step))

    def open(self, kind: str, **settings: Any) -> None:
        if f"open {kind}" in self.fail:
            raise self.fail[f"open {kind}"]
        random.seed(0)
        self.opened.setdefault(kind, []).append(settings)

    def tensorboard(self) -> Any:
        fake = self

        class SummaryWriter:
            def __init__(self, log_dir: str) -> None:
                fake.open("tensorboard", log_dir=log_dir)

            def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
                fake.add("tensorboard", tag, scalar_value, global_step)

            def flush(self) -> None: ...

            def close(self) -> None:
                fake.ended.append("tensorboard")

        return SimpleNamespace(SummaryWriter=SummaryWriter)

    def wandb(self) -> Any:
        def log(data: dict[str, float], step: int, commit: bool) -> None:
            assert commit  # else the last point would wait for the next one
            self.numbers.append(step)
            for name in data.keys() - {"step"}:
                self.add("wandb", name, data[name], int(data["step"]))

        def init(**settings: Any) -> Any:
            self.open("wandb", **settings)
            return SimpleNamespace(
                log=log,
                define_metric=lambda name, step_metric: None,
                finish=lambda: self.ended.append("wandb"),
            )

        return SimpleNamespace(init=init, Settings=lambda **settings: settings)

    def mlflow(self) -> Any:
        fake = self

        class MlflowClient:
            def __init__(self, tracking_uri: str | None = None) -> None:
                fake.open("mlflow", tracking_uri=tracking_uri)

            def get_experiment_by_name(self, name: str) -> None: ...

            def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
                return "7"

            def search_runs(self, experiment_ids: list[str], filter_string: str) -> list[Any]:
                assert experiment_ids == ["7"]
                return [r for r in fake.runs if f"'{r.name}'" in filter_string]

            def create_run(self, experiment_id: str, run_name: str, tags: dict[str, str]) -> Any:
                made = SimpleNamespace(name=run_name, info=SimpleNamespace(run_id=run_name))
                fake.runs.append(made)
                return made

            def log_metric(self, run_id: str, key: str, value: float, step: int) -> None:
                fake.add("mlflow", key, value, step)

            def set_terminated(self, run_id: str) -> None:
                fake.ended.append("mlflow")

        return SimpleNamespace(MlflowClient=MlflowClient)

    def trackio(self) -> Any:
        def log(metrics: dict[str, float], step: int) -> None:
            for name, value in metrics.items():
                self.add("trackio", name, value, step)

        def init(**settings: Any) -> Any:
            self.open("trackio", **settings)
            return SimpleNamespace(log=log, finish=lambda: self.ended.append("trackio"))

        return SimpleNamespace(init=init)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """All four packages, and no trace of them in the environment afterwards."""
    made = Fake()
    for name in ("WANDB_MODE", "WANDB_ERROR_REPORTING", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRACKIO_DIR", "")
    monkeypatch.delenv("TRACKIO_DIR")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    modules: dict[str, Any] = {}
    for name in ("tensorboard", "wandb", "mlflow", "trackio"):
        path = "torch.utils.tensorboard" if name == "tensorboard" else name
        modules[path] = getattr(made, name)()
    # not in sys.modules: accelerate looks there for trackers of its own
    monkeypatch.setattr("hashtune.training.trackers.import_module", modules.__getitem__)
    return made


def trackers(tmp_path: Path, said: list[str], names: str = ALL) -> Trackers:
    modules = chosen(names, folder=tmp_path / "trackers")
    return Trackers(modules, run=tmp_path / "run", folder=tmp_path / "trackers", say=said.append)


def test_each_tracker_gets_every_value_with_its_step(fake: Fake, tmp_path: Path) -> None:
    said: list[str] = []
    curves = Curves(tmp_path / "curves", [], trackers(tmp_path, said))
    for point in (FIRST, EVAL, SECOND):
        curves.log(point)
    curves.end()
    expected = [
        ("eval/loss", 3.0, 1),
        ("train/loss", 2.0, 2),
        ("train/loss", 2.5, 1),
        ("train/lr", 5e-4, 2),
        ("train/lr", 1e-3, 1),
    ]
    assert {kind: sorted(values) for kind, values in fake.logged.items()} == dict.fromkeys(
        ALL.split(","), expected
    )
    assert sorted(fake.ended) == sorted(ALL.split(","))
    assert len(said) == 1 and said[0].startswith("  trackers tensorboard, wandb, mlflow, trackio: ")


def test_a_resumed_run_goes_on_where_its_trackers_were(fake: Fake, tmp_path: Path) -> None:
    """Killed after the second step, resumed from a checkpoint after the first: nothing twice."""
    first = Curves(tmp_path / "curves", [], trackers(tmp_path, []))
    for point in (FIRST, EVAL, SECOND):
        first.log(point)
    again = Curves(tmp_path / "curves", [FIRST], trackers(tmp_path, []))
    for point in (EVAL, SECOND):
        again.log(point)
    assert {kind: len(values) for kind, values in fake.logged.items()} == dict.fromkeys(
        ALL.split(","), 5
    )
    again.log({"step": 3, "train/loss": 1.0})
    again.end()
    assert all(values[-1] == ("train/loss", 1.0, 3) for values in fake.logged.values())
    assert [one["id"] for one in fake.opened["wandb"]] == [fake.opened["wandb"][0]["id"]] * 2
    assert fake.numbers == [1, 2, 3, 4]  # W&B offline would count a resumed run from 0
    assert len(fake.runs) == 1
    Curves(tmp_path / "curves", [], trackers(tmp_path, []))  # a forced rerun is another run
    assert len({one["id"] for one in fake.opened["wandb"]}) == 2
    assert len(fake.runs) == 2


def test_a_tracker_named_later_gets_the_points_before(fake: Fake, tmp_path: Path) -> None:
    first = Curves(tmp_path / "curves", [], trackers(tmp_path, [], "mlflow"))
    first.log(FIRST)
    again = Curves(tmp_path / "curves", [FIRST], trackers(tmp_path, [], "mlflow,trackio"))
    again.log(SECOND)
    assert fake.logged["trackio"] == fake.logged["mlflow"]
    assert len(fake.logged["mlflow"]) == 4


def test_a_failure_is_one_line_and_the_others_go_on(fake: Fake, tmp_path: Path) -> None:
    fake.fail = {"mlflow": OSError("no\nnetwork"), "open wandb": RuntimeError("no key")}
    said: list[str] = []
    curves = Curves(tmp_path / "curves", [], trackers(tmp_path, said))
    curves.log(FIRST)
    curves.log(SECOND)
    curves.end()
    assert [line for line in said if "off" in line] == [
        "  tracker wandb failed and is off: RuntimeError: no key",
        "  tracker mlflow failed and is off: OSError: no network",
    ]
    assert len(fake.logged["tensorboard"]) == len(fake.logged["trackio"]) == 4
    assert sorted(fake.ended) == ["tensorboard", "trackio"]


def test_a_failed_tracker_gets_the_rest_on_resume(fake: Fake, tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves", [], trackers(tmp_path, [], "trackio"))
    curves.log(FIRST)
    fake.fail = {"trackio": OSError("no network")}
    curves.log(EVAL)
    fake.fail = {}
    Curves(tmp_path / "curves", [FIRST, EVAL, SECOND], trackers(tmp_path, [], "trackio"))
    assert [step for _, _, step in fake.logged["trackio"]] == [1, 1, 1, 2, 2]


def test_training_gives_the_same_bits_with_trackers(
    fake: Fake, make_loop: MakeLoop, tmp_path: Path
) -> None:
    """The fakes seed and draw from every generator; dropout would show it."""
    plain = make_loop("plain", dropout=0.1)
    plain.run()
    tracked = make_loop("run", dropout=0.1)
    tracked.trackers = trackers(tmp_path, [])
    assert tracked.run() == plain.progress
    before = plain.trainee.parameters
    assert all(torch.equal(before[n], p) for n, p in tracked.trainee.parameters.items())
    files = [sorted(p for p in (tmp_path / f"curves-{n}").rglob("*.*")) for n in ("plain", "run")]
    assert [p.read_bytes() for p in files[0]] == [p.read_bytes() for p in files[1]]
    assert len(fake.logged["mlflow"]) == 6 * 5 + 3 * 2  # five curves of six steps, two of three


def test_a_stopped_and_resumed_training_logs_each_point_once(
    fake: Fake, make_loop: MakeLoop, tmp_path: Path
) -> None:
    cut = make_loop("run", stop_after=3)
    cut.trackers = trackers(tmp_path, [], "mlflow")
    with pytest.raises(Stopped):
        cut.run()
    resumed = make_loop("run")
    resumed.trackers = trackers(tmp_path, [], "mlflow")
    resumed.run()
    assert len(fake.logged["mlflow"]) == len(set(fake.logged["mlflow"])) == 36
    assert not (tmp_path / "run" / "trackers.json").exists()


def test_what_is_sent_names_no_machine(fake: Fake, tmp_path: Path) -> None:
    """The run's name is the train identity's, and machine facts are off; folders are local."""
    Curves(tmp_path / "curves", [], trackers(tmp_path, []))
    (wandb,) = fake.opened["wandb"]
    name = wandb["name"]
    assert name.startswith("run-") and len(name) == 10  # the folder, and six hex digits
    assert wandb["config"] == {"train_identity": "run"}
    assert wandb["dir"] == str(tmp_path / "trackers")
    off = ("disable_git", "disable_code", "x_disable_stats", "x_disable_meta")
    assert all(wandb["settings"][setting] for setting in off)
    assert (wandb["settings"]["host"], wandb["settings"]["x_save_requirements"]) == ("", False)
    assert wandb["settings"]["x_transaction_log_flush_interval"] == 1.0  # 15 s are lost by a kill
    assert fake.opened["mlflow"] == [{"tracking_uri": f"sqlite:///{tmp_path}/trackers/mlflow.db"}]
    assert fake.opened["tensorboard"] == [{"log_dir": f"{tmp_path}/trackers/tensorboard/{name}"}]
    assert writers.read_json(tmp_path / "run" / "trackers.json")["run"] == name


def test_a_server_of_the_users_own_is_taken(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example")
    Curves(tmp_path / "curves", [], trackers(tmp_path, [], "mlflow"))
    assert fake.opened["mlflow"] == [{"tracking_uri": None}]


def test_unknown_and_missing_packages_are_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(InputError) as caught:
        chosen("wandb, tensorbord,trackio", folder=tmp_path)
    install = "pip install -c requirements.lock -e '.[{}]', or unset HASHTUNE_TRACKERS"
    assert [(f.rule, f.fix) for f in caught.value.findings] == [
        ("no-tracker", install.format("wandb")),
        ("tracker", "did you mean 'tensorboard'?"),
        ("no-tracker", install.format("trackio")),
    ]


@pytest.mark.parametrize("value", ["", " , "])
def test_none_is_the_default(value: str, tmp_path: Path) -> None:
    assert chosen(value, folder=tmp_path) == {}
    said: list[str] = []
    none = Trackers({}, run=tmp_path / "run", folder=tmp_path, say=said.append)
    curves = Curves(tmp_path / "curves", [], none)
    curves.log(FIRST)
    curves.end()
    assert said == [] and not (tmp_path / "run").exists()
