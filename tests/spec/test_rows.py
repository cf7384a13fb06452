"""What a data file may be declared as: names are checked, nothing is guessed."""

import re

import pytest

from hashtune.spec.rows import (
    FIELDS,
    NEEDED,
    ROW_RULES,
    action,
    columns,
    field_faults,
    policy_faults,
    remote_scheme,
)


def test_every_schema_needs_only_fields_that_it_has():
    assert {schema: set(needed) - FIELDS[schema] for schema, needed in NEEDED.items()} == {
        schema: set() for schema in FIELDS
    }


def test_the_rules_of_a_row_are_those_that_the_code_reports(root):
    """Planted by the set itself: a rule added or renamed in the code must be added here."""
    found = set()
    for name in ("messages", "layouts", "schemas", "sharegpt"):
        code = (root / f"src/hashtune/data/{name}.py").read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:place\.finding|\bFinding)\(\s*"([\w-]+)"', code))
    assert found == set(ROW_RULES)


def test_a_mapping_names_columns_of_the_file():
    assert columns("instruction", {}) == ["instruction", "output"]
    mapping = {"output": "category", "group": "customer"}
    assert columns("instruction", mapping) == ["instruction", "category", "customer"]


def test_a_mapping_that_cannot_be_meant_is_told():
    wrong = {"instrution": "text", "output": "x", "input": "x", "system": ""}
    assert list(field_faults("instruction", wrong)) == [
        (
            "instrution",
            "schema instruction has no field 'instrution'; did you mean 'instruction'?",
        ),
        ("output", "field 'x' of the file is given twice"),
        ("input", "field 'x' of the file is given twice"),
        ("system", "names no field of the file"),
    ]
    assert list(field_faults("instruction", {"instruction": "text", "output": "category"})) == []


def test_a_policy_has_one_action_or_one_by_rule():
    assert [action("drop", "null"), action("error", "null")] == ["drop", "error"]
    by_rule = {"default": "error", "blank": "drop"}
    assert [action(by_rule, "blank"), action(by_rule, "null")] == ["drop", "error"]
    assert list(policy_faults(by_rule)) == list(policy_faults("drop")) == []
    assert [key for key, _ in policy_faults({"blanks": "drop"})] == ["default", "blanks"]


@pytest.mark.parametrize(
    ("uri", "scheme"),
    [("data/a.jsonl", None), ("https://x/a", "https"), ("s3://b/a", "s3"), ("a:b", None)],
)
def test_a_url_has_a_scheme(uri, scheme):
    assert remote_scheme(uri) == scheme
