"""hashtune suite add: a past failure becomes an item of a regression suite, pinned again."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hashtune import writers
from hashtune.cli.outputs import read_table
from hashtune.data.located import resolve
from hashtune.data.readers import read_jsonl
from hashtune.errors import Finding, InputError
from hashtune.evaluation.past_failures import (
    Failure,
    Wanted,
    from_answers,
    new_lines,
    own_id,
    parse_rule,
)
from hashtune.evaluation.suites import SuiteItem, load_suites
from hashtune.evaluation.tasks import task_items
from hashtune.records import Message
from hashtune.spec.schema import Suite
from hashtune.spec.suite_pins import declared, option_files, option_text, with_pin, with_suite

FOLDERS = {"evaluate": "task.jsonl", "baseline": "task.jsonl", "regress": "suites.jsonl"}
TEST = Path("build/prepare/test.parquet")
FOLDER = "data/suites"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def run(arguments: argparse.Namespace) -> int:
    """Add the items, or refuse all of them; nothing is written before all is checked."""
    root = Path.cwd()
    _refuse_bytes(arguments)
    config = _inside(arguments.config, root, field="--config")
    suites = _declared(config, arguments.config)
    items = load_suites(suites, max_items=None, root=root)
    uri, is_new = _target(arguments.to, suites, root)
    lines = new_lines(_failures(arguments, items, root), _wanted(arguments), items, file=uri)
    path = root / uri
    old = b"" if is_new else path.read_bytes()
    data = appended(old, lines)
    edits = _edits(arguments, config, uri, data, root, is_new=is_new)
    writers.write_bytes(path, data)
    for file, text in edits.items():
        writers.write_text(file, text)
    for line in lines:
        print(f"added {line['id']} to {uri}, slice {line['slice']}")
    for file in edits:
        print(f"pinned {uri} in {file.relative_to(root)}")
    print("now `hashtune compose && dvc repro`")
    return 0


def _refuse_bytes(arguments: argparse.Namespace) -> None:
    """A terminal's bytes that are no UTF-8 reach Python as surrogates, which no file can hold."""
    given = {
        "--prompt": [arguments.prompt or ""],
        "--rationale": [arguments.rationale],
        "--slice": [arguments.slice],
        "--id": arguments.id,
        "--rule": arguments.rule,
        "--choice": arguments.choice,
    }
    findings = [
        Finding("not-utf8", "is no UTF-8", field=option)
        for option, texts in given.items()
        if any("\ud800" <= char <= "\udfff" for text in texts for char in text)
    ]
    if findings:
        raise InputError(findings)


def appended(old: bytes, lines: Sequence[Mapping[str, Any]]) -> bytes:
    """The content of a suite file with these lines after it, each in canonical JSON."""
    ended = old if not old or old.endswith(b"\n") else old + b"\n"
    return ended + "".join(writers.canonical_json(line, indent=None) for line in lines).encode()


def _declared(config: Path, shown: str) -> list[Suite]:
    suites, findings = [], []
    text = option_text(config, file=shown)
    for place, entry in enumerate(declared(text, file=shown)):
        try:
            suites.append(Suite.model_validate(entry))
        except ValidationError as error:
            findings += [
                Finding("suite-file", f["msg"], file=shown, field=f"suites[{place}].{f['loc'][0]}")
                for f in error.errors()
            ]
    if findings:
        raise InputError(findings)
    return suites


def _target(name: str, suites: Sequence[Suite], root: Path) -> tuple[str, bool]:
    """(uri, whether the suite is new) of the suite of this name."""
    for suite in suites:
        if suite.name == name:
            return suite.uri, False
    if not NAME.fullmatch(name):
        message = f"{name!r} is no name of a suite"
        fix = "at most 100 letters, digits, dots, dashes and underscores"
        raise InputError(Finding("usage", message, field="--to", fix=fix))
    uri = f"{FOLDER}/{name}.jsonl"
    if (root / uri).exists():
        message = f"exists, but no suite {name!r} declares it"
        raise InputError(
            Finding("suite-file", message, file=uri, fix="declare it, or another --to")
        )
    return uri, True


def _inside(given: str, root: Path, *, field: str) -> Path:
    path = resolve(given, root, field=field)
    if isinstance(path, Finding):
        raise InputError(path)
    return path


def _edits(
    arguments: argparse.Namespace,
    config: Path,
    uri: str,
    data: bytes,
    root: Path,
    *,
    is_new: bool,
) -> dict[Path, str]:
    """The new text of each option file that declares the suite, or of --config for a new one."""
    sha256 = writers.sha256_bytes(data)
    if is_new:
        text = option_text(config, file=arguments.config)
        name = arguments.to
        return {config: with_suite(text, name, uri, sha256, file=arguments.config)}
    files = {config, *option_files(root, uri)}
    return {
        file: with_pin(option_text(file, file=file.name), uri, sha256, file=file.name)
        for file in sorted(files)
    }


def _wanted(arguments: argparse.Namespace) -> Wanted:
    return Wanted(
        slice=arguments.slice,
        rationale=arguments.rationale,
        rules=tuple(parse_rule(rule) for rule in arguments.rule),
        choices=tuple(arguments.choice),
    )


def _failures(
    arguments: argparse.Namespace, items: Sequence[SuiteItem], root: Path
) -> list[Failure]:
    ids, prompt = arguments.id, arguments.prompt
    if bool(arguments.rule) == bool(arguments.choice):
        message = "an item has rules, or choices of which the first is right"
        raise InputError(
            Finding("usage", message, field="--rule", fix="one of --rule and --choice")
        )
    if arguments.answers is None:
        if prompt is None or len(ids) > 1:
            message = "what is asked comes from --prompt, or from answers by --from and --id"
            raise InputError(Finding("usage", message, field="--prompt"))
        return [Failure(ids[0] if ids else own_id(arguments.slice, prompt), prompt)]
    if not ids or (prompt is not None and len(ids) > 1):
        message = "--from needs the ids of its answers, and one --prompt serves one id"
        raise InputError(Finding("usage", message, field="--id"))
    shown, rows = _answers(arguments.answers, root)
    asked = _asked(shown, rows, items)
    if prompt is not None:
        asked = {**asked, ids[0]: [{"role": "user", "content": prompt}]}
        rows = [{k: v for k, v in row.items() if k != "messages"} for row in rows]
    return from_answers(rows, ids, file=shown, asked=asked)


def _answers(given: str, root: Path) -> tuple[str, list[dict[str, Any]]]:
    """(file as shown, rows) of a file of answers, or of the folder of a stage."""
    path = Path(given)
    shown = given if path.name not in FOLDERS else (path / FOLDERS[path.name]).as_posix()
    file = _inside(shown, root, field="--from")
    reading = read_jsonl(file, shown=shown)
    if reading.findings:
        raise InputError(reading.findings)
    return shown, [row for _, row in reading.rows]


def _asked(
    shown: str, rows: Sequence[Mapping[str, Any]], items: Sequence[SuiteItem]
) -> dict[str, Sequence[Message]]:
    """What was asked, by id: answers of the stages are recorded without it."""
    if rows and all("reference" in row for row in rows):
        table = read_table(TEST, "prepare", ["id", "messages"])
        return {
            item.id: item.prompt for item in task_items(table.to_pylist(), file=TEST.as_posix())
        }
    return {item.id: item.messages for item in items}
