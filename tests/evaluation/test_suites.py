"""Suite files: pins, findings with lines, the cap, the score."""

import json

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.suites import SuiteItem, load_suites, score_generated, spread
from hashtune.spec.schema import Suite
from hashtune.writers import sha256_bytes

GENERATED = {
    "id": "g1",
    "slice": "s",
    "rationale": "why",
    "prompt": "Hi?",
    "rules": [{"kind": "max_words", "value": 2}],
}
CHOICE = {
    "id": "c1",
    "slice": "k",
    "rationale": "why",
    "question": "2+2?",
    "choices": ["3", "4"],
    "answer": 1,
}


def write(root, name, rows, sha256=None):
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (root / f"{name}.jsonl").write_bytes(data)
    return Suite(name=name, uri=f"{name}.jsonl", sha256=sha256 or sha256_bytes(data))


def findings_of(root, *suites):
    with pytest.raises(InputError) as caught:
        load_suites(suites, max_items=None, root=root)
    return [(f.file, f.line, f.field, f.message) for f in caught.value.findings]


def test_items_come_in_declared_order(tmp_path):
    suites = [write(tmp_path, "b", [CHOICE]), write(tmp_path, "a", [GENERATED])]
    items = load_suites(suites, max_items=None, root=tmp_path)
    assert items == [
        SuiteItem("c1", "b", "k", "2+2?", choices=("3", "4"), answer=1, rationale="why"),
        SuiteItem(
            *("g1", "a", "s", "Hi?"), rules=({"kind": "max_words", "value": 2},), rationale="why"
        ),
    ]
    assert [item.kind for item in items] == ["choice", "generated"]


def test_a_generated_item_passes_or_fails(tmp_path):
    (item,) = load_suites([write(tmp_path, "a", [GENERATED])], max_items=None, root=tmp_path)
    assert [score_generated(item, text) for text in ("one two", "one two three", " ")] == [1, 0, 0]


def test_changed_content_is_refused_before_it_is_read(tmp_path):
    suite = write(tmp_path, "a", [{"broken": 1}], sha256="0" * 64)
    ((file, line, field, message),) = findings_of(tmp_path, suite)
    assert (file, line, field) == ("a.jsonl", None, "regression.suites[0].sha256")
    assert "pinned is 000" in message


def test_all_findings_of_all_suites_at_once(tmp_path):
    why = {"rationale": "why"}
    bad = [
        {"id": "c1", "slice": "k", "question": "q", "choices": ["a", "a"], "answer": 2},
        {"id": "c1", "slice": " ", "question": "q", "choices": ["a", ""], "answer": 0},
        {"id": "", "slice": "k", "prompt": "p", "rules": [{"kind": "max_word", "value": 3}]},
        {"id": "g", "slice": "k", "prompt": "p", "rules": "none", "extra": 1},
        {"id": "h", "slice": "k", "question": "q", "choices": ["a", "b"], "answer": True},
        {"id": "i"},
        GENERATED | {"id": "j", "rationale": " "},
    ]
    bad[:5] = [row | why for row in bad[:5]]
    missing = Suite(name="x", uri="x.jsonl", sha256="0" * 64)
    found = findings_of(tmp_path, write(tmp_path, "a", bad), missing)
    assert found == [
        ("a.jsonl", 2, "id", "'c1' was used at a.jsonl:1"),
        ("a.jsonl", 3, "id", "is no text or blank"),
        ("a.jsonl", 1, "choices", "needs at least two choices, all different"),
        ("a.jsonl", 1, "answer", "is no index of the 2 choices"),
        ("a.jsonl", 2, "slice", "is no text or blank"),
        ("a.jsonl", 2, "choices", "is no list of texts, none blank"),
        (
            "a.jsonl",
            3,
            "rules",
            "rule 0: unknown kind 'max_word', nearest known is 'max_words'",
        ),
        ("a.jsonl", 4, "extra", "is unknown here"),
        ("a.jsonl", 4, "rules", "is no list of rules"),
        ("a.jsonl", 5, "answer", "is no index of the 2 choices"),
        ("a.jsonl", 6, "answer", "is missing"),
        ("a.jsonl", 6, "choices", "is missing"),
        ("a.jsonl", 6, "question", "is missing"),
        ("a.jsonl", 6, "rationale", "is missing"),
        ("a.jsonl", 6, "slice", "is missing"),
        ("a.jsonl", 7, "rationale", "is no text or blank"),
        (None, None, "regression.suites[1].uri", "'x.jsonl' does not exist"),
    ]


def test_ids_are_unique_over_suites_and_empty_suites_are_refused(tmp_path):
    twice = findings_of(tmp_path, write(tmp_path, "a", [CHOICE]), write(tmp_path, "b", [CHOICE]))
    assert twice == [("b.jsonl", 1, "id", "'c1' was used at a.jsonl:1")]
    assert findings_of(tmp_path, write(tmp_path, "c", [])) == [
        ("c.jsonl", None, "regression.suites[0]", "0 rows")
    ]


def test_the_cap_takes_from_all_slices_in_turn(tmp_path):
    slices = "aaaabbc"
    items = [SuiteItem(str(i), "s", name, "?") for i, name in enumerate(slices)]
    picked = {count: "".join(item.id for item in spread(items, count)) for count in (1, 3, 5, 9)}
    assert picked == {1: "0", 3: "046", 5: "01456", 9: "0123456"}
    rows = [CHOICE | {"id": str(i), "slice": name} for i, name in enumerate(slices)]
    capped = load_suites([write(tmp_path, "a", rows)], max_items=3, root=tmp_path)
    assert [item.id for item in capped] == ["0", "4", "6"]


def test_a_suite_of_ones_own_needs_nothing_but_the_schema(tmp_path):
    """Own slices, both kinds in one file, any Unicode, Windows line ends, any folder."""
    rows = [
        CHOICE
        | {
            "id": "\u00e4-1",
            "slice": "St\u00f6rung / R\u00fcckfrage",
            "question": "\u00bfQu\u00e9?",
        },
        GENERATED | {"id": "ticket 7", "slice": "past-failures"},
    ]
    data = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows).encode()
    (tmp_path / "team").mkdir()
    (tmp_path / "team/own.jsonl").write_bytes(data)
    suite = Suite(name="own", uri="team/own.jsonl", sha256=sha256_bytes(data))
    items = load_suites([suite], max_items=None, root=tmp_path)
    assert [(item.suite, item.slice) for item in items] == [
        ("own", "St\u00f6rung / R\u00fcckfrage"),
        ("own", "past-failures"),
    ]
