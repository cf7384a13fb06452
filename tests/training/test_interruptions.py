"""What ends a run, or only asks for a checkpoint: the end has the bits of a straight run."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from hashtune.errors import InputError, Stopped
from hashtune.training import checkpoint as checkpoints
from hashtune.training import loop as loops
from hashtune.training.loop import Loop

MakeLoop = Callable[..., Loop]


@pytest.fixture
def straight(make_loop: MakeLoop) -> Loop:
    loop = make_loop("straight", dropout=0.1)
    loop.run()
    return loop


def same(one: Loop, other: Loop) -> bool:
    """Adapter and curves, bit for bit."""
    pairs = zip(one.trainee.parameters.items(), other.trainee.parameters.items(), strict=True)
    return all(a == b and bool((x == y).all()) for (a, x), (b, y) in pairs) and (
        one.progress == other.progress
    )


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, call: int, error: Exception
) -> Iterator[None]:
    """The call with this number, counted from 1, raises."""
    real, calls = getattr(owner, name), 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wrapped)
        yield


FAULTS = [
    pytest.param((loops, "train_step", 1), id="first step"),
    pytest.param((loops, "train_step", 4), id="a step after a checkpoint"),
    pytest.param((loops, "train_step", 5), id="a step right behind a checkpoint"),
    pytest.param((loops, "evaluate_loss", 2), id="evaluation"),
    pytest.param((checkpoints, "save_file", 1), id="first save"),
    pytest.param((checkpoints, "save_file", 2), id="second save"),
    pytest.param((checkpoints, "write_manifest", 3), id="manifest of the last save"),
    pytest.param((checkpoints, "prune", 2), id="removal of an old checkpoint"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_an_exception_costs_no_bit(
    fault: tuple[Any, str, int],
    straight: Loop,
    make_loop: MakeLoop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, call = fault
    error = RuntimeError("out of memory")
    with (
        failing(monkeypatch, owner, name, call=call, error=error),
        pytest.raises(RuntimeError, match="out of memory"),
    ):
        make_loop("cut", dropout=0.1).run()
    resumed = make_loop("cut", dropout=0.1)
    resumed.run()
    assert same(straight, resumed)


def test_a_disk_that_fills_up_costs_no_bit(
    straight: Loop, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        failing(monkeypatch, checkpoints, "save_file", call=2, error=full),
        pytest.raises(InputError, match="disk-full"),
    ):
        make_loop("cut", dropout=0.1).run()
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["step-00000002"]
    resumed = make_loop("cut", dropout=0.1)
    resumed.run()
    assert resumed.meter.first_step == 3
    assert same(straight, resumed)


def test_planted_fault_a_save_that_forgets_a_tensor_is_seen(
    straight: Loop, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the tests above: a checkpoint without second moments would resume to other bits."""

    def forgets(tensors: dict[str, Any], file: Path) -> None:
        changed = {n: t * 0 if "exp_avg_sq" in n else t for n, t in tensors.items()}
        save_file(changed, file)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_file", forgets)
        with pytest.raises(Stopped):
            make_loop("cut", dropout=0.1, stop_after=3).run()
    resumed = make_loop("cut", dropout=0.1)
    resumed.run()
    assert not same(straight, resumed)


@pytest.fixture
def handlers_put_back() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_put_back")
def test_sigusr1_writes_a_checkpoint_and_the_run_goes_on_to_the_same_bits(
    straight: Loop, make_loop: MakeLoop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loop = make_loop("asked", dropout=0.1, every_steps=10, eval_every_steps=2, keep_last=9)
    loop.stop.install()
    said = loop.say
    held: list[list[int]] = []

    def say(text: str) -> None:
        said(text)
        held.append(checkpoints.steps(tmp_path / "asked"))
        if text.startswith("  step 3/"):
            os.kill(os.getpid(), signal.SIGUSR1)

    loop.say = say
    loop.run()
    assert [steps for number, steps in enumerate(held) if steps not in held[:number]] == [[], [3]]
    assert checkpoints.steps(tmp_path / "asked") == [3, 6]  # one for the signal, one at the end
    assert "SIGUSR1: a checkpoint after this step" in capfd.readouterr().out
    assert same(straight, loop)


@pytest.mark.usefixtures("handlers_put_back")
def test_sigusr1_does_not_stop_a_run_and_sigterm_after_it_does(
    straight: Loop, make_loop: MakeLoop, tmp_path: Path
) -> None:
    loop = make_loop("asked", dropout=0.1, every_steps=10, keep_last=9)
    loop.stop.install()
    said = loop.say
    numbers = {"  step 1/": signal.SIGUSR1, "  step 4/": signal.SIGTERM}

    def say(text: str) -> None:
        said(text)
        for start, number in numbers.items():
            if text.startswith(start):
                os.kill(os.getpid(), number)

    loop.say = say
    with pytest.raises(Stopped, match="SIGTERM after step 4 of 6"):
        loop.run()
    assert checkpoints.steps(tmp_path / "asked") == [1, 4]
    resumed = make_loop("asked", dropout=0.1)
    resumed.run()
    assert resumed.meter.first_step == 5
    assert same(straight, resumed)
