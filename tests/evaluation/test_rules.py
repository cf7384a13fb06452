"""Rules: what every kind accepts and rejects, and what malformed rules are told."""

import pytest

from hashtune.evaluation.rules import KINDS, check_rules, failed_rules, passes

CASES = [
    ("contains_any", ["moon", "star"], "A bright Star fell.", "A starling sang."),
    ("contains_any", ["it's"], "It\u2019s late.", "Its late."),
    ("contains_any", ["c++", "rust"], "I write C++.", "I write C+."),
    ("contains_all", ["red", "ice cream"], "Ice cream, red!", "I cream red ice."),
    ("excludes", ["red"], "We are tired.", "The Red door."),
    ("starts_with", "Sure", "  sure, gladly.", "Surely not."),
    ("ends_with", "?", "Do you like tea?  ", "Do you? I do."),
    ("max_words", 3, "One - two three", "one two three four"),
    ("min_words", 3, "one two three", "one - two"),
    ("one_sentence", None, "Dr. Ames paid 3.50, i.e. enough.", "First. Second."),
    ("one_sentence", None, 'She said "go!"', "No full stop"),
    ("one_sentence", None, "Why not?", "First\nsecond."),
    ("lines", 2, "a\n\n  \nb\n", "a\nb\nc"),
    ("lowercase", None, "all small, 12.", "Not small"),
    ("lowercase", None, "a1", "123"),
    ("uppercase", None, "LOUD 12!", "Loud"),
    ("yes_no", None, "Yes, it is.", "Yesterday it was."),
    ("yes_no", None, "no", "Well, no."),
    ("json_object", None, ' {"a": 1} ', "[1]"),
    ("json_object", ["a", "b"], '{"b": 0, "a": null}', '{"a": 1}'),
    ("json_object", ["a"], '{"a": 1}', 'Here: {"a": 1}'),
    ("number", 18, "It is 18.", "It is 180."),
    ("number", 18, "9 + 9 = 18", "a18 or 18th or 1.18"),
    ("number", 1200, "About 1,200 people", "About 1200.5 people"),
    ("number", -2.5, "(-2.5)", "2.5"),
    ("number", 5, "5, or five", "2.5"),
    ("refusal", None, "I\u2019m sorry, but no.", "Sorry to hear it. Here is how."),
    ("refusal", None, "No, I CANNOT do that.", "You cannot miss it."),
    ("no_refusal", None, "Use the kill command.", "I can't help with that."),
]


def rule(kind: str, value: object = None) -> dict[str, object]:
    """Return a rule, its value left out when None."""
    return {"kind": kind} if value is None else {"kind": kind, "value": value}


@pytest.mark.parametrize(("kind", "value", "good", "bad"), CASES)
def test_kind_accepts_and_rejects(kind, value, good, bad):
    assert passes([rule(kind, value)], good)
    assert not passes([rule(kind, value)], bad)


def test_every_kind_has_a_case():
    assert {case[0] for case in CASES} == set(KINDS)


@pytest.mark.parametrize(("kind", "value"), [(case[0], case[1]) for case in CASES])
def test_blank_answers_fail_every_kind(kind, value):
    assert not passes([rule(kind, value)], " \n")


def test_all_rules_must_hold_and_broken_ones_are_named_in_order():
    rules = [rule("max_words", 2), rule("one_sentence"), rule("contains_any", ["caf\u00e9"])]
    assert failed_rules(rules, "The caf\u00e9.") == []
    assert failed_rules(rules, "one two three") == [
        "max_words=2",
        "one_sentence",
        'contains_any=["caf\u00e9"]',
    ]
    assert not passes(rules, "one two three")


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (rule("max_wrods", 3), "rule 0: unknown kind 'max_wrods', nearest known is 'max_words'"),
        ({"value": 3}, "rule 0: unknown kind None, nearest known is "),
        (rule("max_words", True), "rule 0 (max_words): value must be a positive whole number"),
        (rule("max_words", 0), "rule 0 (max_words): value must be a positive whole number"),
        (rule("lines", 2.0), "rule 0 (lines): value must be a positive whole number"),
        (rule("min_words"), "rule 0 (min_words): value must be a positive whole number"),
        (rule("number", True), "rule 0 (number): value must be a number"),
        (rule("number", "18"), "rule 0 (number): value must be a number"),
        (rule("number", float("nan")), "rule 0 (number): value must be a number"),
        (rule("excludes", "red"), "rule 0 (excludes): value must be a list of texts, none blank"),
        (rule("excludes", []), "rule 0 (excludes): value must be a list of texts, none blank"),
        (rule("contains_all", [1]), "rule 0 (contains_all): value must be a list of texts"),
        (rule("starts_with", " "), "rule 0 (starts_with): value must be a text that is not blank"),
        (rule("json_object", "a"), "rule 0 (json_object): value must be left out or a list of"),
        (rule("yes_no", "yes"), "rule 0 (yes_no): value must be left out"),
        (rule("yes_no") | {"vlaue": 1}, "rule 0 (yes_no): unknown key 'vlaue'"),
    ],
)
def test_malformed_rules_are_described(bad, fault):
    (found,) = check_rules([bad])
    assert found.startswith(fault)


def test_faults_carry_the_index_and_well_formed_rules_have_none():
    assert check_rules([rule("yes_no"), rule("lines", -1)]) == [
        "rule 1 (lines): value must be a positive whole number"
    ]
    assert check_rules([rule(kind, value) for kind, value, _, _ in CASES]) == []


def test_an_item_without_rules_is_malformed():
    assert check_rules([]) == ["no rules: an item needs at least one"]


def test_malformed_rules_raise_instead_of_scoring():
    with pytest.raises(ValueError, match=r"rule 1 \(lines\): value must be"):
        passes([rule("yes_no"), rule("lines", "2")], "Yes.")
    with pytest.raises(ValueError, match="no rules"):
        failed_rules([], "Yes.")
