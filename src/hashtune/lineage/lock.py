"""Does a verdict belong to this state? Compares dvc.lock with params.yaml and the gate's report."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hashtune.errors import Finding, InputError


def stale(lock_text: str, params: Mapping[str, Any], gate: Path) -> list[Finding]:
    """Findings when dvc.lock was made with other params, or gate.json is not what DVC recorded."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        # the loader of params.yaml: PyYAML would read DVC's 1e-08 as a text
        lock: Any = OmegaConf.to_container(OmegaConf.create(lock_text))
        stages = lock["stages"]
        recorded = {out["path"]: out["md5"] for out in stages["gate"]["outs"]}
    except (yaml.YAMLError, OmegaConfBaseException, TypeError, KeyError) as error:
        raise InputError(
            Finding(
                "broken-lock",
                "is cut or damaged, or the gate never ran",
                file="dvc.lock",
                fix="git checkout dvc.lock && dvc repro",
            )
        ) from error
    findings = []
    if hashlib.md5(gate.read_bytes(), usedforsecurity=False).hexdigest() != recorded.get(
        gate.as_posix()
    ):
        findings.append(
            Finding(
                "foreign-verdict", "is not the file DVC recorded", file=str(gate), fix="dvc repro"
            )
        )
    for name, stage in stages.items():
        for key, value in stage.get("params", {}).get("params.yaml", {}).items():
            now = lookup(params, key)
            if now != value:
                findings.append(
                    Finding(
                        "stale-verdict",
                        f"stage {name} ran with {value!r}, params.yaml says {now!r}",
                        file="params.yaml",
                        field=key,
                        fix="dvc repro",
                    )
                )
    return findings


def lookup(params: Mapping[str, Any], dotted: str) -> object:
    """The value at a dotted key, or None."""
    value: Any = params
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
