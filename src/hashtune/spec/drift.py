"""params.yaml against conf/ as it is now: overrides, a stale stamp, or drift that is refused."""

import io
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.composition import compose, parse
from hydra_plugins.hashtune_conf import conf_sha256

STAMP = "conf_sha256"
REFRESH = "`hashtune compose` (or `dvc exp run`, which composes by itself)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One leaf of the spec: its value in conf/ and its value in params.yaml (None: absent)."""

    key: str
    conf: object
    params: object

    @property
    def override(self) -> str:
        """As a person would give it."""
        return f"{self.key}={'null' if self.params is None else self.params}"

    def __str__(self) -> str:
        return f"{self.key}: conf/ says {self.conf!r}, params.yaml says {self.params!r}"


def leaves(tree: object, prefix: str = "") -> dict[str, object]:
    """Dotted key to value; lists and empty mappings are leaves."""
    if not isinstance(tree, Mapping) or not tree:
        return {prefix: tree}
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= leaves(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def differences(conf: Mapping[str, Any], params: Mapping[str, Any]) -> list[Difference]:
    """Every leaf that differs in value or type, in key order; the stamp is not a setting."""
    ours, theirs = leaves(conf), leaves(params)
    return [
        Difference(key, ours.get(key), theirs.get(key))
        for key in sorted(ours.keys() | theirs.keys())
        if key != STAMP and _typed(ours.get(key)) != _typed(theirs.get(key))
    ]


def _typed(value: object) -> tuple[str, object]:
    return type(value).__name__, value


@dataclass(frozen=True, slots=True)
class Drift:
    """What the drift check found: overrides of the plain composition (of the experiment that is
    given), and a note or None."""

    overrides: list[Difference]
    note: str | None
    experiment: list[str] = field(default_factory=list)

    @property
    def given(self) -> list[str]:
        """Everything that must be given to compose the same params.yaml."""
        return [*self.experiment, *(change.override for change in self.overrides)]


def check_drift(root: Path, params: Mapping[str, Any]) -> Drift:
    """Compare params.yaml with conf/ as it is now.

    Hash equal: differing values are `-S` overrides. Hash different, values equal to the plain
    composition: pass with a note. Both different: InputError with every key, old and new value.
    """
    stamp_now = conf_sha256(root)
    experiment = experiment_override(root, params)
    plain = parse(compose(root, experiment))
    changed = differences(plain, params)
    if params.get(STAMP) == stamp_now:
        return Drift(_as_given(root, experiment, params, changed), None, experiment)
    if not changed:
        return Drift(
            [], f"conf/ changed without changing a value; refresh the stamp: {REFRESH}", experiment
        )
    edited, given = _edits(root, params, plain, experiment)
    again = " ".join(["hashtune compose", *given])
    raise InputError(
        Finding(
            "stale-params",
            f"conf/ changed after composition; {difference}",
            file="params.yaml",
            field=difference.key,
            fix=f"`{again}` (or `dvc exp run`, which composes by itself)"
            if edited
            else f"{REFRESH} with the overrides you want",
        )
        for difference in edited or changed
    )


def _edits(
    root: Path, params: Mapping[str, Any], plain: Mapping[str, Any], experiment: list[str]
) -> tuple[list[Difference], list[str]]:
    """What was edited in conf/ since params.yaml was composed, and the overrides it was composed
    with; nothing where conf/ as it was then is not the one of HEAD."""
    with tempfile.TemporaryDirectory() as name:
        then = Path(name)
        if not _committed_conf(root, then) or conf_sha256(then) != params.get(STAMP):
            return [], []
        before = parse(compose(then, experiment))
        given = _as_given(then, experiment, params, differences(before, params))
    changed = differences(plain, before)
    now = leaves(params)
    edited = [Difference(change.key, change.conf, now.get(change.key)) for change in changed]
    return edited, [*experiment, *(shlex.quote(change.override) for change in given)]


def _committed_conf(root: Path, target: Path) -> bool:
    """Put conf/ as HEAD has it below `target`; False without Git."""
    command = ["git", "-C", str(root), "archive", "HEAD", "conf"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        return False
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:  # regular files alone: a link would lead elsewhere
            if data := archive.extractfile(member) if member.isreg() else None:
                file = target / member.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data.read())
    return True


def experiment_override(root: Path, params: Mapping[str, Any]) -> list[str]:
    """["experiment=NAME"] for the overlay that params.yaml names, [] for the default or none."""
    run = params.get("run")
    name = run.get("experiment") if isinstance(run, Mapping) else None
    known = isinstance(name, str) and (root / "conf/experiment" / f"{name}.yaml").is_file()
    return [f"experiment={name}"] if known and name != "default" else []


def _as_given(
    root: Path, experiment: list[str], params: Mapping[str, Any], changed: list[Difference]
) -> list[Difference]:
    """The overrides as a person would give them: group choices, then what they do not explain."""
    groups = [
        Difference(group, change.conf, change.params)
        for change in changed
        for group, _, leaf in [change.key.rpartition(".")]
        if leaf in ("name", "type") and (root / "conf" / group / f"{change.params}.yaml").is_file()
    ]

    def composed(chosen: list[Difference]) -> dict[str, Any]:
        overrides = [f"{choice.key}={choice.params}" for choice in chosen]
        return parse(compose(root, [*experiment, *overrides]))

    everything = composed(groups)
    for choice in list(groups):
        others = [other for other in groups if other is not choice]
        if composed(others) == everything:
            groups = others  # another choice brings this one along, as qlora brings nf4
    values = differences(everything, params)
    for change in list(values):
        same = [v for v in values if v is not change and v.params == change.params]
        if type(change.params) is not int or not same:
            continue
        if leaves(composed([*groups, *same])).get(change.key) == change.params:
            values.remove(change)  # it follows another number, as data_seed follows seed
    return groups + values


def run_name(experiment: str, overrides: Sequence[Difference]) -> str:
    """Experiment name plus what varies from it, in the order of `overrides`."""
    return ",".join([experiment, *(f"{c.key}={_short(c.params)}" for c in overrides)])


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "[" + "+".join(map(_short, value)) + "]"
    return str(value)
