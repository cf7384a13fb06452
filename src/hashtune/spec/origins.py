"""Where a value of the spec was written: its file and line in conf/, or the override that gave it.

Looked for in the order of their say: overrides, the experiment, the group's choice and the files
it builds on, conf/config.yaml. Only a refused spec pays for it: one more composition.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.composition import choices
from hashtune.spec.load import validate
from hashtune.spec.pins import check_pins
from hashtune.spec.schema import Spec

COMPOSED = (None, "params.yaml", "conf/")  # files of findings about values that conf/ or -S gave
GLOBAL = re.compile(r"^# *@package +_global_", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ConfFile:
    """A composed file of conf/: its path from the root, and the section that it fills."""

    path: str
    section: tuple[str, ...]
    node: Any


def checked(params: dict[str, Any], root: Path, overrides: Sequence[str]) -> Spec:
    """The spec, valid and pinned; the findings of InputError name what holds the wrong value.

    `params` is what conf/ under `root` composes with these overrides.
    """
    try:
        spec = validate(params)
    except InputError as error:
        raise InputError(located(error.findings, root, overrides)) from error
    if findings := check_pins(spec, root):
        raise InputError(located(findings, root, overrides))
    return spec


def located(findings: Sequence[Finding], root: Path, overrides: Sequence[str]) -> list[Finding]:
    """The findings with the file and line, or the override, of the value of their field."""
    chosen = choices(root, overrides)
    values = [given for given in overrides if _key(given) not in chosen]
    files = list(_composed(root, chosen))
    return [
        _located(finding, finding.field, values, files)
        if finding.field and finding.file in COMPOSED
        else finding
        for finding in findings
    ]


def _located(
    finding: Finding, field: str, overrides: Sequence[str], files: Sequence[ConfFile]
) -> Finding:
    for override in reversed(overrides):
        key = _key(override)
        if field == key or field.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{field}."):
            return replace(finding, file=f"override {override}", line=None)
    path = tuple(re.findall(r"[^.\[\]]+", field))
    places = [(*_walk(file, path), file.path) for file in files]
    depth, line, name = max(places, key=lambda place: place[0])  # the first of the deepest
    return replace(finding, file=name, line=line) if depth or len(path) == 1 else finding


def _key(override: str) -> str:
    key = override.partition("=")[0].lstrip("+~")
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", key)  # Hydra's way to name an element of a list


def _composed(root: Path, chosen: Mapping[str, str]) -> Iterator[ConfFile]:
    """The files that were composed, those whose values win first."""
    for group in sorted(chosen, key=lambda group: group != "experiment"):
        yield from _with_bases(root, group, chosen[group])
    yield from _with_bases(root, "", "config")


def _with_bases(root: Path, group: str, name: str) -> Iterator[ConfFile]:
    """A choice, then the choices of its own group that its defaults list names."""
    import yaml

    path = Path("conf") / group / f"{name}.yaml"
    if not (root / path).is_file():
        return
    text = (root / path).read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    section = () if not group or GLOBAL.search(text) else tuple(group.split("/"))
    yield ConfFile(path.as_posix(), section, node)
    for base in _values(node, "defaults") if group else ():
        if base.value != "_self_" and isinstance(base.value, str):
            yield from _with_bases(root, group, base.value)


def _values(node: Any, key: str) -> list[Any]:
    pairs = getattr(node, "value", None) or []
    return next((value.value for name, value in pairs if name.value == key), [])


def _walk(file: ConfFile, path: Sequence[str]) -> tuple[int, int | None]:
    """How many parts of the path are there, and the line of the last one found."""
    shared = len(file.section)
    if tuple(path[:shared]) != file.section:
        return 0, None
    node, line = file.node, None
    for depth, part in enumerate(path[shared:], start=shared):
        found = _child(node, part)
        if found is None:
            return depth, line
        line, node = found
    return len(path), line


def _child(node: Any, part: str) -> tuple[int, Any] | None:
    """(line, node) of a key of a mapping or of an element of a list."""
    from yaml import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line + 1, value
    if isinstance(node, SequenceNode) and part.isdigit() and int(part) < len(node.value):
        element = node.value[int(part)]
        return element.start_mark.line + 1, element
    return None
