"""Every finding of `step` and `inspect` says what to do about it."""

import ast
from pathlib import Path

import pytest

COMMANDS = ("cli/step*.py", "cli/inspect.py", "cli/outputs.py", "cli/base.py", "inspection/*.py")
MORE = ("cli/dropped.py", "cli/lengths.py", "cli/page_file.py", "cli/parser.py", "cli/streams.py")
FILES = (*COMMANDS, *MORE, "cli/chat.py", "training/rerun.py", "lineage/lock.py")


def without_fix(text: str) -> list[int]:
    """Lines of the findings that are made without a fix, or with None as one."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Finding"
        and not any(word.arg == "fix" and _says_something(word.value) for word in node.keywords)
    ]


def _says_something(value: ast.expr) -> bool:
    return not any(
        isinstance(part, ast.Constant) and part.value is None for part in ast.walk(value)
    )


def test_each_finding_has_a_fix(root: Path) -> None:
    files = [file for name in FILES for file in sorted((root / "src/hashtune").glob(name))]
    assert len(files) >= 12
    lines = {file.name: without_fix(file.read_text(encoding="utf-8")) for file in files}
    assert {name: found for name, found in lines.items() if found} == {}


@pytest.mark.parametrize(
    "text", ['Finding("rule", "message")', 'Finding("r", "m", file="f", fix=a if b else None)']
)
def test_planted_a_finding_without_one_is_seen(text: str) -> None:
    assert without_fix(text) == [1]
    assert without_fix(text.replace("None", "c").replace('"message"', '"m", fix="x"')) == []
