"""Is a rebuilt pipeline the recorded one? Compares two dvc.lock stage by stage, outputs by hash.

Order is that of dvc.yaml, so the first difference is where to look: what comes after it follows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Lock = Mapping[str, Any]  # "stages" of a dvc.lock

WAS_ANOTHER = "was another file"
EQUAL, OTHER_OUTPUT, OTHER_INPUT, NOT_RUN = "identical", "differs", "other inputs", "not run"


@dataclass(frozen=True, slots=True)
class StageVerdict:
    """One stage: `verdict` is EQUAL, OTHER_OUTPUT, OTHER_INPUT (same outputs, but recorded with
    other parameters or files) or NOT_RUN; `outputs` are those that differ."""

    stage: str
    verdict: str
    outputs: tuple[str, ...] = ()


def compare(
    recorded: Lock, rebuilt: Lock, order: Iterable[str], *, executed: Sequence[str]
) -> list[StageVerdict]:
    """A verdict for each stage, in order."""
    return [
        _stage(name, recorded.get(name), rebuilt.get(name), ran=name in executed) for name in order
    ]


def _stage(name: str, recorded: Any, rebuilt: Any, *, ran: bool) -> StageVerdict:
    if not ran or rebuilt is None:
        return StageVerdict(name, NOT_RUN)
    if recorded is None:
        return StageVerdict(name, OTHER_OUTPUT, tuple(sorted(_hashes(rebuilt, "outs"))))
    ours, theirs = _hashes(recorded, "outs"), _hashes(rebuilt, "outs")
    changed = tuple(sorted(p for p in {*ours, *theirs} if ours.get(p) != theirs.get(p)))
    if changed:
        return StageVerdict(name, OTHER_OUTPUT, changed)
    # `code` reads src/ to reduce it to what counts: another comment is no other input
    same = name == "code" or not other_inputs(recorded, rebuilt)
    return StageVerdict(name, EQUAL if same else OTHER_INPUT)


def other_inputs(recorded: Any, rebuilt: Any) -> list[str]:
    """Inputs of a stage that the two locks record otherwise, in words."""
    now = _hashes(rebuilt, "deps")
    found = [
        f"{path} {WAS_ANOTHER}"
        for path, value in sorted(_hashes(recorded, "deps").items())
        if now.get(path, value) != value
    ]
    ours, theirs = _params(recorded), _params(rebuilt)
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            found.append(f"{key} was {ours.get(key)!r}, params.yaml says {theirs.get(key)!r}")
    return found


def _hashes(stage: Any, kind: str) -> dict[str, str]:
    return {entry["path"]: str(entry["md5"]) for entry in stage.get(kind, ())}


def _params(stage: Any) -> dict[str, Any]:
    return dict(stage.get("params", {}).get("params.yaml", {}))
