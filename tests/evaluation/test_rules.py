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
    ("refusal", None, "well " * 38 + "I can't", "well " * 39 + "I can't"),
    ("no_refusal", None, "Dear Sir, " * 20 + "I will not pay.", "Dear Sir, I will not pay."),
    ("contains_any", ["caf\u00e9"], "Un cafe\u0301.", "Un cafe."),
    ("contains_any", ['say "hi"'], "I say \u201chi\u201d", "I say hi"),
    ("in_order", ["first", "then"], "First this, then that.", "Then this, first that."),
    ("in_order", ["no", "no"], "No, no!", "No!"),
    ("times", {"text": "stop", "count": 2}, "Stop. Stop!", "Stop stop stop"),
    ("times", {"text": "art", "count": 1}, "Art starts.", "It starts."),
    ("equals_any", ["yes"], ' "Yes." ', "Yes, it is."),
    ("equals_any", ["New York", "Rome"], "new  york!", "York"),
    ("excludes_chars", "e,", "It is so.", "It is, so."),
    ("excludes_chars", "e", "Ok", "THE"),
    ("words_start_with", "s", "- Sun, sea; 'sand'", "Sun, moon"),
    ("max_chars", 3, " a\u200bbc ", "abcd"),
    ("min_chars", 3, "abc", "ab "),
    ("words", 2, "Mount Etna.", "Etna"),
    ("sentences", 2, "Snow fell. It was 2.5 m", "Snow fell. It melted. Then spring came."),
    ("sentences", 2, "1. Dr. Ames left.\n2. Snow fell.", "Snow fell..."),
    ("sentences", 2, "\u4eca\u65e5\u306f\u6691\u3044\u3002\u306f\u3044\u3002", "\u6691\u3044"),
    ("max_sentences", 1, "One!", "One! Two!"),
    ("paragraphs", 2, "a\nb\n \n\nc", "a\nb"),
    ("capitalised", None, "The Old 2 House", "The old House"),
    ("capitalised", None, "A Tale", "12 34"),
    ("json_object", ["a"], '```json\n{"a": 1}\n```', '```json\n{"b": 1}\n```'),
    ("json_object", ["a"], '{"a": "```"}', '```\n{"a": 1}\n```\n```'),
    ("json_object", None, '{"a": 1e5}', '{"a": NaN}'),
    ("json_array", None, "[]", "[-Infinity]"),
    ("json_array", None, "[]", "{}"),
    ("json_array", 2, '["a", 1]', "[1]"),
    ("json_values", {"a": "Oslo", "b": 1}, '{"b": 1.0, "a": "oslo", "c": 0}', '{"a": "Oslo"}'),
    ("json_values", {"a": 1}, '{"a": 1}', '{"a": true}'),
    ("json_values", {"a": None}, '{"a": null}', "{}"),
    ("csv_columns", 2, 'name,age\n"Ames, B", 5', "name,age\nBen"),
    ("csv_columns", 2, "```csv\na,b\n```", "a,"),
    ("csv_columns", 1, "a", 'a"b","'),
    ("table_columns", 2, "| a | b |\n|---|:-:|\n| 1 | 2 |", "| a | b |\n|---|---|"),
    ("table_columns", 2, "a | b\n--- | ---\n1 | 2", "| a | b |\n|---|---|\n| 1 |"),
    ("table_columns", 1, "|a|\n|-|\n|b|", "|a|\n|b|\n|c|"),
    ("bullets", 2, "Pets:\n- cat\n* dog", "-cat\n- dog"),
    ("numbered", 2, "Here:\n1. a\n2) b", "1. a\n3. b"),
    ("numbered", 1, "1. a", "1.a"),
    ("separated", {"by": ",", "count": 3}, "tea, milk, water", "tea, milk,\nwater"),
    ("separated", {"by": "/", "count": 3}, "5/5/2020", "5/5/"),
    ("quoted", None, "\u201cRex\u201d", 'A "Rex"'),
    ("quoted", None, '"Rex and Max"', '"Rex" and "Max"'),
    ("quoted", None, '"a"', '"'),
    ("key_lines", ["Name", "City"], "**Name:** Tom\n- city: Rome", "City: Rome\nName: Tom"),
    ("key_lines", ["Name"], "name: T:m", "Name:"),
    ("code_block", None, "So:\n```python\nprint(1)\n```", "Use `print`."),
    ("only_number", 9, " **9.** ", "6 + 3 = 9"),
    ("only_number", -1200, "-1,200", "1200"),
    ("no_digits", None, "seven", "a \u0667"),
    ("script", "cyrillic", "\u0434\u0430 = da \u043d\u0435\u0442", "da"),
    ("script", "japanese", "\u4eca\u65e5\u306f", "konnichiwa"),
    ("script", "latin", "12 \u00e9t\u00e9", "\u0434\u0430"),
    ("distinct_lines", None, "a\n\nb", "Tea\nmilk\ntea "),
    ("max_repeats", 1, "a b c d e", "a b c d a B c d"),
    ("max_repeats", 2, "a a a a a", "a a a a a a"),
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
        (rule("number", 10**400), "rule 0 (number): value must be a number"),
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


@pytest.mark.parametrize(
    ("bad", "wants"),
    [
        (rule("in_order", ["a"]), "a list of at least two texts, none blank"),
        (rule("times", {"text": "a"}), '{"text": a text, "count": a positive whole number}'),
        (rule("times", {"text": "a", "count": 0}), '{"text": a text, "count": a positive whole'),
        (rule("separated", {"by": " ", "count": 2}), '{"by": a text, "count": a positive whole'),
        (rule("separated", ["by", "count"]), '{"by": a text, "count": a positive whole number}'),
        (rule("words_start_with", "st"), "one letter"),
        (rule("words_start_with", "1"), "one letter"),
        (rule("json_values", {}), "an object of keys with their values, none nested"),
        (rule("json_values", {"a": [1]}), "an object of keys with their values, none nested"),
        (rule("json_array", 0), "left out or a positive whole number"),
        (rule("script", "klingon"), "one of arabic, cyrillic, greek"),
        (rule("contains_any", ["\u200b"]), "a list of texts, none blank"),
        (rule("max_repeats"), "a positive whole number"),
    ],
)
def test_values_of_structured_kinds_are_checked(bad, wants):
    (found,) = check_rules([bad])
    assert found.startswith(f"rule 0 ({bad['kind']}): value must be {wants}")


def test_an_answer_of_zero_width_characters_is_blank():
    assert not passes([rule("max_words", 3)], "\ufeff\u200b \n")


HOSTILE = {
    "brackets": "[" * 20_000,
    "dots": "." * 20_000,
    "digits": "1" * 20_000 + "x",
    "quotes": '"' * 20_001,
    "blanks": "a" + "\n \t" * 6_000 + "b",
    "fences": "```\n" * 5_000,
    "surrogate": "\ud800 a",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_breaks_a_kind_or_holds_it_up(name):
    for kind, value in {case[0]: case[1] for case in CASES}.items():
        assert passes([rule(kind, value)], HOSTILE[name]) in (True, False)


def test_at_least_25_kinds():
    assert len(KINDS) >= 25
