"""Composition of conf/ into params.yaml, byte for byte as DVC does it, and the drift rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    def __str__(self) -> str:
        return f"{self.key}: conf/ says {self.conf!r}, params.yaml says {self.params!r}"


def compose(root: Path, overrides: Sequence[str] = ()) -> str:
    """The text of params.yaml for conf/ under `root` and Hydra overrides.

    Raises InputError with Hydra's own words for a bad override or a broken conf/, and with file
    and line for a conf file that is no YAML.
    """
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    refuse_strays(root)
    try:
        with initialize_config_dir(str((root / "conf").resolve()), version_base=None):
            config = hydra_compose(config_name="config", overrides=list(overrides))
        OmegaConf.resolve(config)
        return OmegaConf.to_yaml(config)
    except yaml.YAMLError as error:
        raise InputError(_no_yaml(error, root)) from error
    except (HydraException, OmegaConfBaseException) as error:
        text = " ".join(str(error).split())
        raise InputError(
            Finding("compose", text, file="conf/", fix="see the words above")
        ) from error


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
    """What the drift check found: overrides of the plain composition, and a note or None."""

    overrides: list[Difference]
    note: str | None


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
        return Drift(_as_given(root, experiment, params, changed), None)
    if not changed:
        return Drift([], f"conf/ changed without changing a value; refresh the stamp: {REFRESH}")
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
