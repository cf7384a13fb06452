"""The suites that an option file of conf/regression declares, and edits that keep its comments.

An edit changes the text at the place of one value and is read back: a file that then says anything
else than wanted is left alone.
"""

from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError

BY_HAND = "write the suite and its sha256 into the file by hand"


def option_text(path: Path, *, file: str) -> str:
    """The text of an option file.

    Raises:
        InputError: no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"is no UTF-8 (byte {error.start + 1})"
        raise InputError(Finding("not-utf8", message, file=file, fix="save it as UTF-8")) from error


def declared(text: str, *, file: str) -> list[dict[str, Any]]:
    """The entries of `suites`: name, uri, sha256. Empty where the file declares none.

    Raises:
        InputError: no YAML, or no list of such entries.
    """
    return [{key: node.value for key, node in entry.items()} for entry in _entries(text, file)]


def with_pin(text: str, uri: str, sha256: str, *, file: str) -> str:
    """The text with this sha256 at every suite of this uri."""
    wanted = [
        entry | {"sha256": sha256} if entry["uri"] == uri else entry
        for entry in declared(text, file=file)
    ]
    edited = text
    for entry in reversed(_entries(text, file)):
        if entry["uri"].value == uri:
            pin = entry["sha256"]
            start, end = pin.start_mark.index, pin.end_mark.index
            edited = f'{edited[:start]}"{sha256}"{edited[end:]}'
    return _checked(edited, wanted, file)


def with_suite(text: str, name: str, uri: str, sha256: str, *, file: str) -> str:
    """The text with one more suite after those that it declares."""
    new = {"name": name, "uri": uri, "sha256": sha256}
    wanted = [*declared(text, file=file), new]
    lines = text.split("\n")
    suites = _suites(text, file)
    if suites is None or suites.flow_style or not suites.value:
        raise InputError(Finding("suite-file", "lists no suites, line by line", file=file))
    first, last = suites.value[0].start_mark.line, suites.value[-1].value[-1][1].end_mark.line
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    # quoted: YAML reads a bare null, true or 123 as no text
    entry = [f'{indent}- name: "{name}"', f"{indent}  uri: {uri}", f'{indent}  sha256: "{sha256}"']
    return _checked("\n".join([*lines[: last + 1], *entry, *lines[last + 1 :]]), wanted, file)


def option_files(root: Path, uri: str) -> list[Path]:
    """The files of conf/regression that declare a suite of this uri, by name."""
    found = []
    for path in sorted((root / "conf/regression").glob("*.yaml")):
        file = path.relative_to(root).as_posix()
        suites = declared(option_text(path, file=file), file=file)
        found += [path] if any(entry["uri"] == uri for entry in suites) else []
    return found


def _checked(text: str, wanted: list[dict[str, Any]], file: str) -> str:
    if declared(text, file=file) != wanted:
        message = "is written in a way that cannot be edited safely"
        raise InputError(Finding("suite-file", message, file=file, fix=BY_HAND))
    return text


def _suites(text: str, file: str) -> Any:
    import yaml

    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InputError(Finding("suite-file", f"is no YAML: {error}", file=file)) from error
    pairs = tree.value if isinstance(tree, yaml.MappingNode) else []
    found = [node for key, node in pairs if key.value == "suites"]
    return found[0] if found else None


def _entries(text: str, file: str) -> list[dict[str, Any]]:
    """Each entry of `suites` as nodes by key."""
    suites = _suites(text, file)
    if suites is None or suites.value in ("", "null", []):
        return []
    nodes = suites.value if isinstance(suites.value, list) else [suites]
    entries = [{key.value: node for key, node in _pairs(entry)} for entry in nodes]
    if any(set(entry) != {"name", "uri", "sha256"} for entry in entries):
        message = "has an entry that is not name, uri and sha256"
        raise InputError(Finding("suite-file", message, file=file, field="suites"))
    return entries


def _pairs(entry: Any) -> list[Any]:
    import yaml

    return list(entry.value) if isinstance(entry, yaml.MappingNode) else []
