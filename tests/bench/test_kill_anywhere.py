"""The kills are spread as promised, strike where they are drawn, and a wrong byte is seen."""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Script = Callable[[str], ModuleType]


@pytest.fixture(autouse=True)
def profiler_off() -> Iterator[None]:
    before = sys.getprofile()
    yield
    sys.setprofile(before)


@pytest.mark.parametrize(("kills", "runs", "least"), [(100, 10, 10), (6, 1, 1), (12, 2, 2)])
def test_every_phase_gets_its_share(script: Script, kills: int, runs: int, least: int) -> None:
    bench = script("kill_anywhere")
    chains = bench.draw(kills, runs, seed=0)
    assert len(chains) == runs
    struck = [kill for chain in chains for kill in chain]
    assert len(struck) == kills
    assert all(count >= least for count in Counter(kill.phase for kill in struck).values())
    assert {kill.phase for kill in struck} == set(bench.PHASES)
    assert all(chain[0].phase == bench.FIRST for chain in chains)
    assert sum(kill.phase == bench.FIRST for kill in struck) <= runs
    assert chains == bench.draw(kills, runs, seed=0)
    assert chains != bench.draw(kills, runs, seed=1)


def test_a_hundred_kills_have_every_blow_in_every_phase(script: Script) -> None:
    bench = script("kill_anywhere")
    struck = [kill for chain in bench.draw(100, 10, seed=0) for kill in chain]
    for phase in bench.PHASES:
        blows = {(kill.signal, kill.target) for kill in struck if kill.phase == phase}
        assert blows == set(bench.BLOWS)


def test_the_real_base_gets_five_kills_in_one_run(script: Script) -> None:
    (chain,) = script("kill_anywhere").real_chain(0)
    assert len({kill.phase for kill in chain}) == 5


def order(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    blow = {"phase": "step", "event": 3, "signal": "SIGTERM", "target": "stage"}
    return {"notes": str(tmp_path / "notes.json"), **blow, **changes}


def visited(striker: Any, phase: str, lines: int) -> None:
    """A phase of this many calls of Python."""

    def call() -> None: ...

    striker.enter(phase)
    for _ in range(lines):
        call()
    striker.leave(phase)


def test_it_strikes_at_the_event_of_the_phase_and_once(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    striker = script("kill_shim").Striker(order(tmp_path))
    visited(striker, "evaluation", 9)
    assert sent == []
    visited(striker, "step", 9)
    visited(striker, "step", 9)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert json.loads((tmp_path / "notes.json").read_text()) == {"hit": "step"}


def test_a_phase_inside_another_belongs_to_the_outer_one(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    striker = script("kill_shim").Striker(order(tmp_path))
    striker.enter("last step to rename")
    visited(striker, "step", 9)
    assert striker.phase == "last step to rename"
    assert sent == []


def test_writes_count_calls_of_the_file_system_only(script: Script, tmp_path: Path) -> None:
    striker = script("kill_shim").Striker(order(tmp_path, phase=None))
    visited(striker, "checkpoint write", 9)
    striker.enter("checkpoint write")
    os.mkdir(tmp_path / "a")  # noqa: PTH102  pathlib would add events of its own
    striker.leave("checkpoint write")
    assert striker.counts == {"checkpoint write": [0, 2]}  # before the call and after it


@pytest.fixture
def chain(script: Script, tmp_path: Path) -> Any:
    """A chain whose train is done: one file of each kind."""
    kill_chain = script("kill_chain")
    clone = kill_chain.Clone(tmp_path / "clone", tmp_path / "home")
    for name in ("build/train/adapter/weights", "build/train/curves/loss", "reports/train.json"):
        (clone.path / name).parent.mkdir(parents=True)
        (clone.path / name).write_text("1")
    (clone.path / "dvc.lock").touch()
    made = kill_chain.Chain(clone)
    made.reference = clone.outputs()
    return made


@pytest.mark.parametrize("name", ["build/train/adapter/weights", "build/train/curves/loss"])
def test_planted_fault_a_changed_byte_is_seen(chain: Any, name: str) -> None:
    chain._compare()
    (chain.clone.path / name).write_text("2")
    with pytest.raises(Exception, match=f"the bytes of the uninterrupted run in .'{name}'"):
        chain._compare()


def start(chain: Any, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """_start, with a `dvc` that only says this."""
    bin_folder = chain.folder / "fake"
    bin_folder.mkdir()
    (bin_folder / "dvc").write_text(f"#!/bin/sh\necho '{said}'\n")
    (bin_folder / "dvc").chmod(0o755)
    path = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    monkeypatch.setattr(type(chain.clone), "environment", lambda self, order: path)
    chain._start(None)


@pytest.mark.parametrize(
    ("checkpoints", "said"),
    [((), "  starting at step 1"), ((4, 12), "  resuming after step 12 from step-00000012")],
)
def test_a_start_at_the_newest_checkpoint_is_right(
    chain: Any, monkeypatch: pytest.MonkeyPatch, checkpoints: tuple[int, ...], said: str
) -> None:
    for step in checkpoints:
        (chain.clone.home / f"runs/abc/step-{step:08d}").mkdir(parents=True)
    start(chain, monkeypatch, said)


@pytest.mark.parametrize("said", ["  starting at step 1", "  resuming after step 4 from x"])
def test_planted_fault_a_start_elsewhere_is_seen(
    chain: Any, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (chain.clone.home / "runs/abc/step-00000012").mkdir(parents=True)
    with pytest.raises(Exception, match="resuming after step 12"):
        start(chain, monkeypatch, said)


def test_planted_fault_a_trainer_that_lives_on_is_seen(
    chain: Any, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_chain = script("kill_chain")
    monkeypatch.setattr(kill_chain, "ENDS_WITHIN", 0)
    monkeypatch.setattr(kill_chain.Clone, "trainers", lambda self: [4242])
    with pytest.raises(Exception, match=r"no trainer lives on: .4242"):
        start(chain, monkeypatch, "  starting at step 1")
