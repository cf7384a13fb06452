"""Composition of conf/ into params.yaml, byte for byte as DVC does it, and the drift rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hydra_plugins.hashtune_conf import conf_sha256, untracked_conf

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


def compose(root: Path, overrides: Sequence[str] = ()) -> str:
    """The text of params.yaml for conf/ under `root` and Hydra overrides.

    Raises InputError with Hydra's own words for a bad override or a broken conf/, and with file
    and line for a conf file that is no YAML.
    """
    import yaml
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    refuse_strays(root)
    try:
        return OmegaConf.to_yaml(_composed(root, overrides))
    except yaml.YAMLError as error:
        raise InputError(_no_yaml(error, root)) from error
    except (HydraException, OmegaConfBaseException) as error:
        where = _culprit(root, overrides, str(error), (HydraException, OmegaConfBaseException))
        raise InputError(Finding("compose", _words(str(error)), file=where)) from error


def _composed(root: Path, overrides: Sequence[str], *, with_hydra: bool = False) -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str((root / "conf").resolve()), version_base=None):
        config = hydra_compose("config", list(overrides), return_hydra_config=with_hydra)
    if not with_hydra:  # its own section cannot be resolved here
        OmegaConf.resolve(config)
    return config


def choices(root: Path, overrides: Sequence[str]) -> dict[str, str]:
    """The file that each group takes, by group, under those of the overrides that choose one."""
    chosen = [given for given in overrides if (root / "conf" / given.partition("=")[0]).is_dir()]
    found = _composed(root, chosen, with_hydra=True).hydra.runtime.choices
    return {group: name for group, name in found.items() if not group.startswith("hydra/")}


def _words(text: str) -> str:
    """Hydra's words, a line each, without its search path."""
    lines = text.partition("Config search path:")[0].splitlines()
    return "\n    ".join(line.strip() for line in lines if line.strip())


def _culprit(
    root: Path, overrides: Sequence[str], text: str, errors: tuple[type[Exception], ...]
) -> str:
    """The override without which it composes, all of them where conf/ alone does, or the file that
    Hydra names."""

    def composes(others: Sequence[str]) -> bool:
        try:
            _composed(root, others)
        except errors:
            return False
        return True

    for index, override in enumerate(overrides):
        if composes([*overrides[:index], *overrides[index + 1 :]]):
            return f"override {override}"
    if overrides and composes([]):
        return f"overrides {' '.join(overrides)}"
    named = re.match(r"In '([\w/.-]+)'", text)
    return f"conf/{named[1]}.yaml" if named else "conf/"


def _no_yaml(error: Exception, root: Path) -> Finding:
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(getattr(error, "problem", None) or error).split())
    fix = "quote a text that holds ': ' or ' #'; indent with spaces"
    if mark is None:
        return Finding("yaml", text, file="conf/", fix=fix)
    path = Path(mark.name)
    shown = path.relative_to(root.resolve()) if path.is_relative_to(root.resolve()) else path.name
    return Finding("yaml", text, file=str(shown), line=mark.line + 1, fix=fix)


def refuse_strays(root: Path) -> None:
    """Refuse params.yaml in a subfolder (left by `dvc exp run` there) and untracked conf files."""
    strays = {
        path for folder in ("conf", "data", "src") for path in (root / folder).rglob("params.yaml")
    }
    findings = [
        Finding(
            "stray-params",
            f"is not part of {stray.parts[0]}/: `dvc exp run` in a subfolder leaves it",
            file=str(stray),
            fix=f"git rm or rm {stray}, and run in the root",
        )
        for stray in sorted(path.relative_to(root) for path in strays)
    ]
    findings += [
        Finding(
            "untracked-conf",
            "is not in Git: --queue and --temp would run without it",
            file=name,
            fix=f"git add {name}",
        )
        for name in untracked_conf(root)
        if not name.endswith("/params.yaml")
    ]
    if findings:
        raise InputError(findings)


def parse(text: str) -> dict[str, Any]:
    """params.yaml text as plain data, through the one loader (spec.load)."""
    from omegaconf import OmegaConf

    data = OmegaConf.to_container(OmegaConf.create(text))
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}


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
    raise InputError(
        Finding(
            "stale-params",
            f"conf/ changed after composition; {difference}",
            file="params.yaml",
            field=difference.key,
            fix=f"{REFRESH} with the overrides you want",
        )
        for difference in changed
    )


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
    return groups + differences(everything, params)


def run_name(experiment: str, overrides: Sequence[Difference]) -> str:
    """Experiment name plus what varies from it, in the order of `overrides`."""
    return ",".join([experiment, *(f"{c.key}={_short(c.params)}" for c in overrides)])


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "[" + "+".join(map(_short, value)) + "]"
    return str(value)
