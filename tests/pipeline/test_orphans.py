"""However a run was started and whatever got the signal: one trainer, no orphan, bits that go on.

Each test freezes the trainer after a new checkpoint, so that the blow falls while it trains, and
lets it go on afterwards. All runs share one train identity: each resumes what the one before left.
"""

import json
import os
import re
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

TRAIN = ("-f", "-s", "train")
SPEC = (
    *("experiment=toy", "duration.epochs=4", "duration.max_steps=30"),
    *("checkpoint.every_steps=1", "checkpoint.eval_every_steps=30"),
)
SETTINGS = [item for override in SPEC for item in ("-S", override)]  # exp run composes afresh
REPRO = ("dvc", "repro", *TRAIN)
RUN = ("dvc", "exp", "run", *TRAIN, *SETTINGS)
TEMP = ("dvc", "exp", "run", "--temp", *TRAIN, *SETTINGS)
QUEUE = ("dvc", "exp", "run", "--queue", *TRAIN, *SETTINGS)


def processes(toy):
    """Command line of every living process of the toy by its id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            mine = f"HOME={toy.home}\0".encode() in (folder / "environ").read_bytes()
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if mine and line:  # a zombie has neither
                found[int(folder.name)] = line
    return found


def trainers(toy):
    return [pid for pid, line in processes(toy).items() if "hashtune.stages.train" in line]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def newest(toy):
    """The last step with a complete checkpoint."""
    found = (toy.home / "store/runs").rglob("step-*/manifest.json")
    return max((int(path.parent.name[5:]) for path in found), default=0)


def until(condition, what):
    deadline = time.monotonic() + 120
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


@contextmanager
def started(toy, *command, env=None):
    """A command that runs; at the end of the block no trainer of it is left, frozen ones too."""
    with toy.start(*command, env=env) as process:
        try:
            yield process
        finally:
            for pid in trainers(toy):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def frozen(toy, before):
    """The one trainer, stopped between two system calls once it wrote a checkpoint of its own."""
    (pid,) = until(lambda: trainers(toy), "no trainer")
    until(lambda: newest(toy) > before, "no checkpoint")
    os.kill(pid, signal.SIGSTOP)
    return pid


def gone(toy, pid, before):
    """Let the trainer go on, wait for its end; it left a checkpoint and nothing that trains."""
    os.kill(pid, signal.SIGCONT)
    until(lambda: not trainers(toy), "an orphan trains on")
    assert before < newest(toy) < 30, "the run was too fast to be interrupted"


@pytest.fixture(scope="module")
def trained(built):
    """The toy with 30 steps, trained once without interruption."""
    built.restore()
    built.run("hashtune", "compose", *SPEC)
    built.run("dvc", "repro", "train")
    built.git("commit", "-q", "-a", "-m", "30 steps")
    return built


@pytest.fixture
def long(trained):
    """That clone; ends what a test that failed left behind."""
    yield trained
    for pid in processes(trained):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not processes(trained), "processes that outlive SIGKILL")
    trained.forget_queue()


BLOWS = {
    "dvc": lambda pid: os.kill(parent(pid), signal.SIGKILL),
    "stage": lambda pid: os.kill(pid, signal.SIGTERM),
    "group": lambda pid: os.killpg(os.getpgid(pid), signal.SIGINT),
}
# each blow twice; the death of dvc alone in `dvc repro` is in test_repro.py
CASES = [(REPRO, "group"), (RUN, "dvc"), (RUN, "stage"), (TEMP, "dvc"), (TEMP, "group")]


@pytest.mark.proof
def test_a_signal_to_dvc_the_stage_or_the_group_leaves_one_trainer_and_its_state(long):
    whole = long.adapter_sha256()
    for command, hit in CASES:
        before = newest(long)
        with started(long, *command) as process:
            pid = frozen(long, before)
            BLOWS[hit](pid)
            gone(long, pid, before)
            output = process.communicate()[0]
        assert "stopped, can resume" in output, (command, hit, output)
        assert f"resuming after step {before}" in output or not before, (command, hit, output)
        long.git("checkout", "-q", "-f", "main")  # a killed `dvc exp run` leaves HEAD detached
    for way in ("kill", "stop --kill"):  # SIGINT to the group, SIGKILL to DVC
        pid, before = queued(long)
        task = re.findall(r"^(\w{7}) .* Running", long.run("dvc", "queue", "status"), re.M)
        long.run("dvc", "queue", *way.split(), *(task if way == "kill" else []))
        gone(long, pid, before)
        until(lambda: not processes(long), "a process outlives the queue")
    assert f"resuming after step {newest(long)}" in long.run(*REPRO)
    assert long.adapter_sha256() == whole


def queued(toy, *more):
    """Queue a run and start a worker; the trainer, frozen, and the step it began after."""
    before = newest(toy)
    toy.run(*QUEUE, *more)
    with toy.start("dvc", "queue", "start") as process:
        process.wait()  # not for its output, which the worker keeps open
    return frozen(toy, before), before


def recorded_lock(toy, name):
    """dvc.lock of the experiment of that name."""
    names = toy.git("for-each-ref", "--format=%(refname)", "refs/exps").split()
    (done,) = (ref for ref in names if ref.endswith(f"/{name}"))
    return toy.git("show", f"{done}:dvc.lock")


@pytest.mark.proof
def test_ctrl_c_of_run_all_leaves_its_worker_at_work_and_a_stage_stopped_alone_resumes(long):
    pid, before = queued(long, "-n", "stopped")
    os.kill(pid, signal.SIGTERM)
    gone(long, pid, before)
    until(lambda: not processes(long), "a process outlives the queue")
    assert re.search(r" stopped .* Failed", long.run("dvc", "queue", "status"))
    before = newest(long)
    long.run(*QUEUE, "-n", "again")
    with started(long, "dvc", "exp", "run", "--run-all", "-j", "1") as following:
        pid = frozen(long, before)
        assert os.getpgid(pid) != following.pid  # so Ctrl-C does not reach it
        # Going again before Ctrl-C: Linux sends SIGHUP to a process group that the end of its
        # starter orphans while a member is stopped.
        os.kill(pid, signal.SIGCONT)
        os.killpg(following.pid, signal.SIGINT)
        assert following.wait() == 0  # not for its output, which the worker keeps open
        until(lambda: not processes(long), "a process outlives its run")
        assert "still executing in the background" in following.communicate()[0]
    log = long.run("dvc", "queue", "logs", "again")
    assert log.count("train: start") == 1, log  # one trainer,
    assert f"resuming after step {before}" in log
    assert "stopped, can resume" not in log  # and it never noticed
    assert re.search(r" again .* Success", long.run("dvc", "queue", "status"))
    assert recorded_lock(long, "again") == (long.path / "dvc.lock").read_text()


@pytest.mark.proof
def test_a_temporary_run_killed_between_train_and_record_trains_again_to_the_same_bits(long):
    other = ("-S", "optim.lr=3e-3")
    unforced = [item for item in (*TEMP, *other) if item != "-f"]
    results = long.home / "store/runs"
    known = set(results.glob("*/result/manifest.json"))
    with started(long, *unforced) as process:
        until(lambda: set(results.glob("*/result/manifest.json")) - known, "no result")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "the test was too slow to kill DVC"
    (result,) = set(results.glob("*/result/manifest.json")) - known
    first = json.loads(result.read_text())["files"]
    output = long.run(*unforced, "-n", "twice")
    assert "starting at step 1" in output, output
    assert json.loads(result.read_text())["files"] == first
    assert recorded_lock(long, "twice") != (long.path / "dvc.lock").read_text()


@pytest.mark.proof
def test_a_run_that_lost_its_queue_worker_ends_and_is_in_the_run_cache(long):
    other = ("-S", "optim.lr=2e-3")
    pid, _ = queued(long, *other)
    lines = processes(long)
    os.kill(next(p for p, line in lines.items() if "queue-worker" in line), signal.SIGKILL)
    assert trainers(long) == [pid]
    os.kill(pid, signal.SIGCONT)
    until(lambda: not processes(long), "a process outlives its run")
    assert newest(long) == 0
    again = [item for item in (*TEMP, *other) if item != "-f"]
    assert "Stage 'train' is cached" in long.run(*again)
    (task,) = re.findall(r"^(\w{7}) .* Running", long.run("dvc", "queue", "status"), re.M)
    long.run("dvc", "queue", "kill", task)  # DVC cannot know it, and `--run-all` would wait
    assert "Running" not in long.run("dvc", "queue", "status")


def test_a_second_worker_of_another_clone_waits_and_takes_the_result(long, tmp_path):
    before = long.adapter_sha256()
    other = long.clone(tmp_path)
    cache = f"[cache]\n    dir = {long.path}/.dvc/cache\n"
    (other.path / ".dvc/config.local").write_text(cache)
    other.run("dvc", "checkout", "-q")
    one_store = {"HASHTUNE_HOME": str(long.home / "store")}
    with started(long, *REPRO) as first:
        until(lambda: "starting at step 1" in first.stdout.readline(), "no training")
        (pid,) = trainers(long)
        os.kill(pid, signal.SIGSTOP)
        with started(other, *TEMP, env=one_store) as waiting:
            until(lambda: "another trainer holds this run" in waiting.stdout.readline(), "no wait")
            os.kill(pid, signal.SIGCONT)
            taken = waiting.communicate()[0]
        assert "stopped, can resume" not in first.communicate()[0]
    assert "took the result of the trainer that was already at it" in taken, taken
    assert "step 1/30" not in taken
    assert long.adapter_sha256() == before
    names = other.git("for-each-ref", "--format=%(refname)", "refs/exps").split()
    (done,) = (name for name in names if re.match("refs/exps/[0-9a-f]{2}/", name))
    assert other.git("show", f"{done}:dvc.lock") == (long.path / "dvc.lock").read_text()
