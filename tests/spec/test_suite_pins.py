"""Edits of conf/regression: the pin or the new suite, and nothing else."""

import pytest

from hashtune.errors import InputError
from hashtune.spec.suite_pins import declared, option_files, with_pin, with_suite

OLD, NEW = "a" * 64, "b" * 64
TEXT = f"""# the suites
suites:
  - name: one # first
    uri: data/one.jsonl
    sha256: "{OLD}" # of March
  - name: two

    uri: "data/two.jsonl" # quoted
    sha256: {OLD}
max_new_tokens: 48 # short
"""


def test_the_pin_alone_changes():
    one = with_pin(TEXT, "data/one.jsonl", NEW, file="f")
    assert one == TEXT.replace(f'"{OLD}" # of March', f'"{NEW}" # of March')
    two = with_pin(TEXT, "data/two.jsonl", NEW, file="f")
    assert two == TEXT.replace(f"sha256: {OLD}\n", f'sha256: "{NEW}"\n')
    assert with_pin(TEXT, "data/three.jsonl", NEW, file="f") == TEXT


def test_a_suite_comes_after_the_last_one():
    entry = f'  - name: "new"\n    uri: data/new.jsonl\n    sha256: "{NEW}"\n'
    edited = with_suite(TEXT, "new", "data/new.jsonl", NEW, file="f")
    assert edited == TEXT.replace("max_new", f"{entry}max_new")
    assert [suite["name"] for suite in declared(edited, file="f")] == ["one", "two", "new"]


def test_lists_without_indent_and_unfinished_last_lines():
    flat = f"suites:\n- name: one\n  uri: data/one.jsonl\n  sha256: {OLD}"
    edited = with_suite(flat, "new", "n.jsonl", NEW, file="f")
    assert edited == f'{flat}\n- name: "new"\n  uri: n.jsonl\n  sha256: "{NEW}"'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("suites: [", "is no YAML"),
        ("suites:\n  - name: one\n", "has an entry that is not name, uri and sha256"),
        ("suites:\n  - one\n", "has an entry that is not name, uri and sha256"),
        ("suites: []\n", "lists no suites, line by line"),
        ("max_new_tokens: 4\n", "lists no suites, line by line"),
    ],
)
def test_what_cannot_be_edited_is_refused(text, told):
    with pytest.raises(InputError, match=told):
        with_suite(text, "new", "n.jsonl", NEW, file="f")


def test_an_edit_that_says_something_else_is_refused():
    """Planted: a name that YAML reads as another value."""
    with pytest.raises(InputError, match="cannot be edited safely"):
        with_suite(TEXT, 'new" # not', "n.jsonl", NEW, file="f")


def test_option_files_that_declare_a_suite(tmp_path):
    folder = tmp_path / "conf/regression"
    folder.mkdir(parents=True)
    (folder / "default.yaml").write_text(TEXT)
    (folder / "short.yaml").write_text(TEXT.replace("two.jsonl", "three.jsonl"))
    (folder / "none.yaml").write_text("suites: []\n")
    named = {
        uri: [file.name for file in option_files(tmp_path, uri)]
        for uri in ("data/one.jsonl", "data/three.jsonl", "x")
    }
    assert named == {
        "data/one.jsonl": ["default.yaml", "short.yaml"],
        "data/three.jsonl": ["short.yaml"],
        "x": [],
    }
