"""A crash, a full disk or a power loss at every call that writes a checkpoint; damaged bytes.

Nothing half-written lies under a checkpoint's name, the newest intact one is used, and the next
save or the end of the run sweeps what was left. Planted savers that break a rule turn this red.
"""

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save as as_bytes

from hashtune import folders, writers
from hashtune.errors import InputError
from hashtune.training import checkpoint as checkpoints
from hashtune.training.checkpoint import Progress
from hashtune.training.intact import FILES, complete
from hashtune.training.runs import finish, take_result

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
GROWS = ("open", "mkdir", "write", "save_file", "copyfile", "fsync", "replace")


class Crash(BaseException):
    """The process is gone: no handler of ours may tidy up after it."""


class Disk:
    """Counts calls; the one with number `at` fails as `how` says.

    how: "before" and "after" end the process there, "half" in the middle of a write; "full" is
    ENOSPC there and in all later calls that need room. After an end every call raises, so that
    no `finally` changes what lies on the disk. `lose_power` empties what was not flushed.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, at: int = 0, how: str = "before") -> None:
        self.at, self.how = at, how
        self.calls: list[str] = []
        self.gone = self.full = False
        self.unflushed: set[int] = set()
        for name in ("mkdir", "replace", "unlink", "rmdir", "chmod", "fsync"):
            patch.setattr(os, name, self._counted(name, getattr(os, name)))
        opened, fdopen = os.open, os.fdopen

        def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            act = self._counted("open", opened) if flags & WRITES else opened
            return int(act(path, flags, *rest, **options))

        patch.setattr(os, "open", open_)
        patch.setattr(os, "fdopen", lambda handle, mode: _Stream(self, fdopen(handle, mode)))
        patch.setattr(checkpoints, "save_file", self._save_file)
        patch.setattr(shutil, "copyfile", self._copyfile)

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return self.do(name, lambda: real(*arguments, **options), arguments=arguments)

        return call

    def do(
        self,
        name: str,
        whole: Callable[[], Any],
        half: Callable[[], Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> Any:
        """One call: refuse it, cut it, or make it."""
        if self.gone:
            raise Crash
        self.calls.append(name)
        chosen = len(self.calls) == self.at
        self.full |= chosen and self.how == "full"
        if self.full and name in GROWS:
            if half is not None:
                half()
            raise OSError(errno.ENOSPC, "No space left on device")
        if chosen and self.how in ("before", "half"):
            if self.how == "half" and half is not None:
                half()
            self._end()
        try:
            result = whole()
        finally:  # a folder that is there already ends the call with an error
            if chosen and self.how == "after":
                self._end()
        if name == "fsync":
            self.unflushed.discard(os.fstat(arguments[0]).st_ino)
        return result

    def _end(self) -> None:
        self.gone = True
        raise Crash

    def write(self, path: Path, data: bytes, *, name: str) -> None:
        """Bytes into a file, as one call; not flushed yet."""

        def put(content: bytes) -> None:
            path.write_bytes(content)
            self.unflushed.add(path.stat().st_ino)

        self.do(name, lambda: put(data), lambda: put(data[: len(data) // 2]))

    def _save_file(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        self.write(path, as_bytes(tensors), name="save_file")

    def _copyfile(self, source: str, target: str, **_: Any) -> str:
        self.write(Path(target), Path(source).read_bytes(), name="copyfile")
        return target

    def lose_power(self, folder: Path) -> None:
        """What fsync has not put on the disk is lost: names stay, the bytes do not."""
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_ino in self.unflushed:
                path.write_bytes(b"")


class _Stream:
    """What os.fdopen gave, its writes counted."""

    def __init__(self, disk: Disk, stream: Any) -> None:
        self.disk, self.stream = disk, stream

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def write(self, data: bytes) -> None:
        def put(content: bytes) -> None:
            self.stream.write(content)
            self.stream.flush()
            self.disk.unflushed.add(os.fstat(self.stream.fileno()).st_ino)

        self.disk.do("write", lambda: put(data), lambda: put(data[: len(data) // 2]))

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return int(self.stream.fileno())


IDENTITY = "1" * 64
SETTINGS: dict[str, Any] = {"identity": IDENTITY, "spec": {"inputs": {}}, "code": {}}
Act = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _no_real_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disk keeps the account; a real flush of a thousand files takes a busy disk minutes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def tensors(step: int) -> dict[str, torch.Tensor]:
    return {
        "adapter.layer": torch.arange(64.0) * step,
        "optimizer.exp_avg.layer": torch.arange(64.0) / step,
    }


def save(run: Path, step: int) -> None:
    checkpoints.save(run, Progress(step=step, updates=step), tensors(step), **SETTINGS)


def save_and_prune(run: Path, step: int = 4) -> None:
    save(run, step)
    checkpoints.prune(run, keep_last=1, best_step=None, written=step)


def loaded_step(folder: Path) -> int:
    """The step of a checkpoint that holds exactly what was saved for it."""
    loaded = checkpoints.load(folder, parameters=["layer"], steps=100, **SETTINGS)
    for name, tensor in tensors(loaded.progress.step).items():
        assert torch.equal(loaded.tensors[name], tensor)
    return loaded.progress.step


def check(run: Path, *, allowed: set[int | None]) -> None:
    """After a fault: nothing half under a name, the newest is intact, a later save sweeps."""
    assert [complete(checkpoints.directory(run, s)) for s in checkpoints.steps(run)] == [
        None for _ in checkpoints.steps(run)
    ]
    folder, notes = checkpoints.newest(run)
    assert notes == []
    assert (None if folder is None else loaded_step(folder)) in allowed
    save_and_prune(run, 6)
    assert sorted(path.name for path in run.iterdir()) == ["step-00000006"]
    assert loaded_step(run / "step-00000006") == 6


def count(prepare: Act, act: Act, tmp_path: Path) -> int:
    """Number of calls of an undisturbed act."""
    run = tmp_path / "counted"
    prepare(run)
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        act(run)
    return len(disk.calls)


def crashes(prepare: Act, act: Act, tmp_path: Path, *, power: bool = False) -> list[Path]:
    """The run's folder after a crash before, in and after each call of `act`."""
    ended = []
    for at in range(1, count(prepare, act, tmp_path) + 1):
        for how in ("before", "half", "after"):
            run = tmp_path / f"{at}-{how}"
            prepare(run)
            with pytest.MonkeyPatch.context() as patch:
                disk = Disk(patch, at=at, how=how)
                with pytest.raises(Crash):
                    act(run)
            if power:
                disk.lose_power(run)
            ended.append(run)
    return ended


def with_an_older_one(run: Path) -> None:
    save(run, 2)


def with_none(run: Path) -> None:
    run.mkdir()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize(
    ("prepare", "allowed"), [(with_an_older_one, {2, 4}), (with_none, {None, 4})]
)
def test_a_crash_at_every_call_leaves_the_old_or_the_new(
    prepare: Act, allowed: set[int | None], power: bool, tmp_path: Path
) -> None:
    ended = crashes(prepare, save_and_prune, tmp_path, power=power)
    assert len(ended) >= 3 * 20
    for run in ended:
        check(run, allowed=allowed)


def test_a_crash_while_a_broken_folder_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    def prepare(run: Path) -> None:
        save(run, 2)
        save(run, 4)
        (run / "step-00000004" / "state.json").write_bytes(b"")

    for run in crashes(prepare, save_and_prune, tmp_path):
        folder, notes = checkpoints.newest(run)
        assert folder is not None
        assert loaded_step(folder) in (2, 4)
        assert notes == [] or notes[0].startswith("step-00000004 skipped: state.json has 0 bytes")
        save_and_prune(run, 6)
        assert [path.name for path in run.iterdir()] == ["step-00000006"]


def test_a_full_disk_at_every_call_is_a_finding_and_leaves_the_good_one(tmp_path: Path) -> None:
    calls = count(with_an_older_one, lambda run: save(run, 4), tmp_path)
    for at in range(1, calls + 1):
        run = tmp_path / f"full-{at}"
        save(run, 2)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, at=at, how="full")
            try:
                save(run, 4)
            except InputError as error:
                assert [finding.rule for finding in error.findings] == ["disk-full"]
            else:  # only the removal of temporary names came after it
                assert disk.calls[at - 1] in ("rmdir", "unlink", "chmod")
        assert not list(run.glob(".*"))
        check(run, allowed={2, 4})


OUTPUTS = {"adapter": b"trained", "report.json": b"{}"}


def outputs(run: Path) -> dict[str, Path]:
    folder = run.with_name(run.name + "-out")
    paths = {"adapter": folder / "adapter", "report.json": folder / "report.json"}
    writers.write_bytes(paths["adapter"] / "weights", OUTPUTS["adapter"])
    writers.write_bytes(paths["report.json"], OUTPUTS["report.json"])
    return paths


def finished_whole(run: Path) -> bool:
    """A second trainer takes all or nothing."""
    taken = {name: run.with_name(f"{run.name}-taken") / name for name in OUTPUTS}
    if not take_result(run, taken):
        return False
    assert (taken["adapter"] / "weights").read_bytes() == OUTPUTS["adapter"]
    assert taken["report.json"].read_bytes() == OUTPUTS["report.json"]
    return True


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_every_call_of_the_end_keeps_state_or_result(
    power: bool, tmp_path: Path
) -> None:
    def prepare(run: Path) -> None:
        save(run, 2)
        save(run, 4)
        (run / "stable").mkdir()
        outputs(run)

    def end(run: Path) -> None:
        folder = run.with_name(run.name + "-out")
        outs = {name: folder / name for name in OUTPUTS}
        finish(run, outs, lock=folder / "dvc.lock")

    for run in crashes(prepare, end, tmp_path, power=power):
        folder, notes = checkpoints.newest(run)
        assert notes == []
        if folder is None:
            assert finished_whole(run)
        else:
            assert loaded_step(folder) == 4
            finished_whole(run)
        outputs(run)
        end(run)
        assert [path.name for path in run.iterdir()] == ["result"]
        assert finished_whole(run)


def damages(data: bytes, draw: random.Random) -> list[bytes]:
    """Cut at some lengths, and one bit turned at up to 60 places."""
    cuts = [data[:length] for length in (0, 1, len(data) // 2, len(data) - 1)]
    places = draw.sample(range(len(data)), min(60, len(data)))
    flips = []
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << draw.randrange(8)
        flips.append(bytes(changed))
    return cuts + flips


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_damaged_bytes_are_never_loaded(name: str, tmp_path: Path) -> None:
    save(tmp_path, 2)
    save(tmp_path, 4)
    file = tmp_path / "step-00000004" / name
    data, used = file.read_bytes(), []
    for damaged in damages(data, random.Random(7)):
        file.write_bytes(damaged)
        folder, notes = checkpoints.newest(tmp_path)
        assert folder is not None
        used.append(loaded_step(folder))  # a space of the manifest may turn into another one
        assert (used[-1] == 4) == (notes == [])
    if name != "manifest.json":
        assert set(used) == {2}
    assert used.count(2) >= 0.9 * len(used)


def in_place(run: Path, step: int) -> None:
    """Planted: the manifest first, no folder aside."""
    folder = checkpoints.directory(run, step)
    with writers.staged_directory(run / "other") as aside:
        checkpoints.save(aside, Progress(step=step), tensors(step), **SETTINGS)
        kept = {p.name: p.read_bytes() for p in (aside / folder.name).iterdir()}
    shutil.rmtree(run / "other")
    folder.mkdir()
    for name in ("manifest.json", *FILES):
        writers.write_bytes(folder / name, kept[name])


def by_name_alone(folder: Path) -> str | None:
    """Planted: a checkpoint is what has all its files."""
    there = all((folder / name).is_file() for name in (*FILES, "manifest.json"))
    return None if there else "a file is missing"


def red(act: Act, tmp_path: Path, *, power: bool = False) -> bool:
    """Whether any crash of a planted saver is seen."""
    seen = False
    for run in crashes(with_none, act, tmp_path, power=power):
        try:
            check(run, allowed={None, 4})
        except (AssertionError, InputError):
            seen = True
    return seen


def test_planted_fault_the_manifest_is_not_last(tmp_path: Path) -> None:
    assert red(lambda run: in_place(run, 4), tmp_path)


def test_planted_fault_files_are_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_fsync_tree", lambda folder: None)
    assert red(save_and_prune, tmp_path, power=True)


def test_planted_fault_a_folder_is_removed_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "remove_folder", shutil.rmtree)
    for run in crashes(with_an_older_one, save_and_prune, tmp_path):
        if any(complete(checkpoints.directory(run, s)) for s in checkpoints.steps(run)):
            return
    pytest.fail("not seen")


def test_planted_fault_a_reader_that_trusts_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 2)
    save(tmp_path, 4)
    (tmp_path / "step-00000004" / "tensors.safetensors").write_bytes(b"")
    monkeypatch.setattr(checkpoints, "complete", by_name_alone)
    folder, _ = checkpoints.newest(tmp_path)
    assert folder is not None
    with pytest.raises(SafetensorError):
        loaded_step(folder)
