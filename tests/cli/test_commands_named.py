"""What findings and hints tell people to type exists: commands, their options, fields, targets."""

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hashtune.cli.commands import parser
from hashtune.spec.schema import Section, Spec

COMMAND = re.compile(r"`([^`]+)`")
FIELD = re.compile(r"\b([a-z_]+(?:\.[a-z_0-9]+)+)=")


def texts(source: str) -> Iterator[str]:
    """All texts of a module but docstrings; what an f-string puts in becomes 1."""
    tree = ast.parse(source)
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    docs = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # text that stands alone
    for node in ast.walk(tree):
        if id(node) in inside or id(node) in docs:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = node.values
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "1" for p in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown(text: str, targets: set[str], fields: set[str]) -> list[str]:
    """Commands in backticks that hashtune or make do not know, and fields of no section."""
    found = []
    for quoted in COMMAND.findall(text):
        for command in re.split(r"&&|;", quoted):
            words = shlex.split(command)
            if words[:1] == ["hashtune"] and not parses(words[1:]):
                found.append(command)
            if words[:1] == ["make"] and not set(words[1:]) <= targets:
                found.append(command)
    known = {field.split(".")[0] for field in fields}
    named = FIELD.findall(text)
    return found + [n for n in named if n.split(".")[0] in known and n not in fields]


def parses(words: list[str]) -> bool:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser().parse_args(words)
        except SystemExit as error:
            return error.code == 0  # --help
    return True


def fields_of(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield prefix + name
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from fields_of(kind, f"{prefix}{name}.")


@pytest.fixture(scope="module")
def known(root: Path) -> tuple[set[str], set[str]]:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"setup", "test", "repro"} <= targets
    return targets, set(fields_of(Spec))


def test_each_command_and_field_that_a_text_names_exists(
    root: Path, known: tuple[set[str], set[str]]
) -> None:
    files = sorted((root / "src/hashtune").rglob("*.py"))
    assert len(files) > 100
    wrong = {
        file.name: unknown(text, *known)
        for file in files
        for text in texts(file.read_text(encoding="utf-8"))
        if unknown(text, *known)
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('fix = f"`hashtune inspect --stop {n}`"', ["hashtune inspect --stop 1"]),
        ('fix = "`hashtune steps 4`"', ["hashtune steps 4"]),
        ('fix = "`hashtune step`"', ["hashtune step"]),
        ('fix = f"`hashtune step {n} --run`"', []),
        ('fix = "`make everything && hashtune check`"', ["make everything "]),
        ('fix = "optim.rate=1, optim.lr=2"', ["optim.rate"]),
        ('"""`hashtune steps 4`"""', []),
    ],
)
def test_planted_what_does_not_exist_is_seen(
    source: str, wrong: list[str], known: tuple[set[str], set[str]]
) -> None:
    assert [fault for text in texts(source) for fault in unknown(text, *known)] == wrong
