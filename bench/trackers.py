"""The four trackers with their real packages, offline: each value once, through a kill and resume.

    pip install -c requirements.lock -e '.[tensorboard,wandb,mlflow,trackio]'
    HASHTUNE_TRACKERS=tensorboard,mlflow PYTHONPATH=src python bench/trackers.py

A first process logs points 1 to 3 and is killed (SIGKILL); a second one resumes from a checkpoint
after point 1 and logs to 5. Then the values are read back from what each tracker wrote.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from hashtune.training.backends import VARIABLE
from hashtune.training.trackers import Trackers, chosen

POINTS = [{"step": n, "train/loss": 3.0 - n / 4, "train/lr": 1e-3 / n} for n in range(1, 5)]
POINTS.insert(2, {"step": 2, "eval/loss": 2.75})
EXPECTED = sorted((n, p["step"], v) for p in POINTS for n, v in p.items() if n != "step")


def log(folder: Path, name: str, first: int, last: int) -> Trackers:
    """Give points first..last, those before `first` too, as a resumed run does."""
    modules = chosen(name, folder=folder / "trackers")
    trackers = Trackers(modules, run=folder / "run", folder=folder / "trackers", say=print)
    trackers.start()
    for number, point in enumerate(POINTS[:last], 1):
        trackers.log(number, point)
    return trackers


def tensorboard(folder: Path) -> list[tuple[str, int, float]]:
    """Values of the event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = (folder / "trackers" / "tensorboard").iterdir()
    events = EventAccumulator(str(run)).Reload()
    names = events.Tags()["scalars"]
    return [(name, e.step, e.value) for name in names for e in events.Scalars(name)]


def mlflow(folder: Path) -> list[tuple[str, int, float]]:
    """Values of the SQLite store."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.resolve()}/trackers/mlflow.db")
    experiment = client.get_experiment_by_name("hashtune")
    (run,) = client.search_runs([experiment.experiment_id])
    print("  mlflow tags", dict(run.data.tags), "user", run.info.user_id or "none")
    return [
        (name, m.step, m.value)
        for name in run.data.metrics
        for m in client.get_metric_history(run.info.run_id, name)
    ]


def wandb(folder: Path) -> list[tuple[str, int, float]]:
    """Values of the offline files, which hold protocol buffers in LevelDB's log format."""
    import json

    from wandb.proto import wandb_internal_pb2

    found, ids, steps = [], set(), []
    for file in sorted((folder / "trackers" / "wandb").glob("offline-run-*/run-*.wandb")):
        for data in log_records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.add(record.run.run_id)
                assert not record.run.host, record.run.host
            assert kind not in ("environment", "files"), record  # facts of the machine
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            names = [name for name in items if not name.startswith("_") and name != "step"]
            found += [(name, items["step"], items[name]) for name in names]
            if kind == "history":
                steps.append(record.history.step.num)
    assert len(ids) == 1, ids
    assert steps == [n + 1 for n in range(len(POINTS))], steps  # W&B's own, through the resume
    return found


def log_records(data: bytes) -> list[bytes]:
    """The whole records of a log of blocks of 32 KiB, after its 7 bytes of head; a cut one ends."""
    records, parts, place = [], b"", 7
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4) and place <= len(data):  # whole, or last part
            records.append(parts)
            parts = b""
    return records


def trackio(folder: Path) -> list[tuple[str, int, float]]:
    """Values of the SQLite file."""
    import json
    import sqlite3

    (file,) = (folder / "trackers" / "trackio").glob("hashtune*.db")
    with sqlite3.connect(file) as db:
        rows = db.execute("SELECT step, metrics FROM metrics").fetchall()
    return [(name, step, value) for step, text in rows for name, value in json.loads(text).items()]


READERS = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow, "trackio": trackio}


def version(name: str) -> str:
    """Of the installed package; MLflow is also the distribution mlflow-skinny."""
    names = metadata.packages_distributions()[name]
    return ", ".join(f"{one} {metadata.version(one)}" for one in sorted(set(names)))


def prove(name: str) -> bool:
    """Log, kill, resume, read back."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        command = [sys.executable, __file__, name, str(folder)]
        process = subprocess.Popen([*command, "3"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            print(" ", line, end="")
            if line == "logged\n":
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        subprocess.run([*command, "5"], check=True)
        found = sorted(
            (n, s, min((x for _, _, x in EXPECTED), key=lambda x: abs(x - v)))
            for n, s, v in READERS[name](folder)
        )  # TensorBoard keeps float32
    same = found == EXPECTED
    print(f"{name}, {version(name)}: {len(found)} values, {'each once' if same else found}")
    return same


def main() -> int:
    """As a child: log up to a point. Else prove the trackers that the variable names."""
    if len(sys.argv) == 4:
        name, folder, last = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
        trackers = log(folder, name, 1, last)
        time.sleep(2)
        print("logged", flush=True)
        if last == 3:
            time.sleep(60)
        trackers.end()
        return 0
    names = os.environ.get(VARIABLE, ",".join(READERS)).split(",")
    return 0 if all([prove(name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
