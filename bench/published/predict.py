"""What the rehearsal, the closed form and the peers say of a point, in bytes."""

from dataclasses import dataclass

from hashtune.memory.rehearsal.assume import assume
from hashtune.memory.rehearsal.live import follow
from published.closed import closed_form
from published.known import config_of
from published.litgpt_step import litgpt
from published.metamath_settings import Settings as MetaMath
from published.metamath_step import metamath
from published.peer_runs import peer_run
from published.peers import PEERS
from published.rows import Point
from published.transformers_step import transformers_blocks


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes of one point: rehearsed in its kind (allocated or reserved), the closed form, and the
    peers that have an answer. `phase`: when the rehearsal is at its peak."""

    rehearsal: int
    phase: str
    closed: int
    peers: dict[str, int]


def predict(point: Point) -> Prediction:
    """All of them; the rehearsal takes seconds."""
    rehearsed, phase = rehearse(point)
    run = peer_run(point)
    peers = {} if run is None else {name: round(rule(run)) for name, rule in PEERS.items()}
    return Prediction(rehearsed, phase, closed_form(point), peers)


def rehearse(point: Point) -> tuple[int, str]:
    """(most bytes, phase) of the measured system's step: allocated as the allocator rounds it, or
    reserved."""
    config = config_of(point.model)["config"]
    if isinstance(point.run, MetaMath):
        found: list[int] = []
        told = follow(metamath(config, point.run, found), assumed=assume("cuda"))
        return found[0], told.peak_phase
    told = follow(litgpt(config, point.run), assumed=assume("cuda"))
    return told.rounded, told.peak_phase


def with_transformers(point: Point) -> int:
    """Bytes allocated with transformers' blocks in LitGPT's place."""
    config = config_of(point.model)["config"]
    return follow(transformers_blocks(config, point.run), assumed=assume("cuda")).rounded
