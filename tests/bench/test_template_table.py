"""docs/templates.md is what the command writes; a cell is exact only where two tokenizers agree."""

import csv
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def template_table(script) -> ModuleType:
    """The script as a module."""
    return script("template_table")


@pytest.fixture(scope="module")
def rows(root) -> dict[str, tuple[dict[str, str], str]]:
    """The sources' row and the text of each template."""
    folder = root.parent / "shared/chat_templates"
    if not folder.is_dir():
        pytest.skip("../shared is absent")
    with (folder / "SOURCES.tsv").open(encoding="utf-8", newline="") as handle:
        found = {row["name"]: row for row in csv.DictReader(handle, delimiter="\t")}
    return {
        name: (row, (folder / f"{name}.jinja").read_bytes().decode("utf-8"))
        for name, row in found.items()
    }


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("qwen-qwen2_5-7b-instruct", "exact"),
        ("qwen-qwen3-0_6b", 'unstable; exact with `unstable: "split"`'),
        ("nvidia-nemotron-nano-v2", "open-reasoning"),
    ],
)
def test_the_page_has_the_lines_that_the_command_writes(template_table, rows, root, name, plain):
    cells = template_table.line(*rows[name])
    assert (cells[0], cells[1], cells[5]) == (name, plain, plain)
    page = (root / "docs/templates.md").read_text(encoding="utf-8")
    assert "| " + " | ".join(cells) + " |" in page.splitlines()


def test_the_page_has_every_template(rows, root):
    page = (root / "docs/templates.md").read_text(encoding="utf-8")
    named = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines()[8:]]
    assert named == sorted(rows)
    assert "plain 27 and 39, system 28 and 39," in page
    for line in page.splitlines()[8:]:
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        assert cells[1] == cells[5]  # lists of text parts are their text


def test_two_tokenizers_that_disagree_are_not_exact(template_table, rows, monkeypatch):
    """Planted: one of them trains another text."""
    answers = iter([["yo"], ["yo<|im_end|>"]])
    monkeypatch.setattr(template_table, "trained", lambda *_: next(answers))
    row, text = rows["qwen-qwen2_5-7b-instruct"]
    pair = template_table.tokenizers(row, text)
    assert template_table.cell(pair, text, "plain", {}) == "differs"
