"""Composition of conf/ into params.yaml, byte for byte as DVC does it."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError, nearest
from hydra_plugins.hashtune_conf import untracked_conf


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
    refuse_nameless(overrides)
    try:
        return OmegaConf.to_yaml(_composed(root, overrides))
    except yaml.YAMLError as error:
        raise InputError(_no_yaml(error, root)) from error
    except (HydraException, OmegaConfBaseException) as error:
        where = _culprit(root, overrides, str(error), (HydraException, OmegaConfBaseException))
        fix = _way_out(root, overrides, str(error))
        raise InputError(Finding("compose", _words(str(error)), file=where, fix=fix)) from error


def refuse_nameless(overrides: Sequence[str]) -> None:
    """Refuse overrides without a key, on which Hydra trips over itself."""
    findings = [
        Finding("compose", "names no field", file=f"override {given}", fix="KEY=VALUE, as after -S")
        for given in overrides
        if not re.match(r"[~+]*[A-Za-z_]", given)
    ]
    if findings:
        raise InputError(findings)


def _way_out(root: Path, overrides: Sequence[str], text: str) -> str | None:
    """A fix where Hydra's words lead astray: an unknown key, several values."""
    if "--multirun" in text:
        return "one value; a sweep is `dvc exp run --queue -S 'KEY=A,B'`"
    if missing := re.search(r"Could not find '([\w/-]+)/([\w.-]+)'", text):
        choices = (root / "conf" / missing[1]).glob("*.yaml")
        return nearest(missing[2], [choice.stem for choice in choices])
    named = re.search(r"Could not override '([\w./@-]+)'", text)
    if named is None:
        return None
    from omegaconf import OmegaConf

    known = set(_leaves(OmegaConf.to_container(_composed(root, []))))
    return nearest(named[1], known) if named[1] not in known else None


def _leaves(tree: Any, prefix: str = "") -> Iterator[str]:
    """Dotted keys of a tree: of its sections and of its values."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        name = f"{prefix}.{key}" if prefix else str(key)
        yield name
        yield from _leaves(value, name)


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
            fix=f"git add {name}, and commit it: `dvc exp run` takes back what is only added",
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
