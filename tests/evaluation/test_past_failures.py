"""Past failures: rules from the command line, requests from answers, lines or findings."""

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.past_failures import (
    Failure,
    Wanted,
    from_answers,
    new_lines,
    own_id,
    parse_rule,
)
from hashtune.evaluation.suites import SuiteItem

RULE = {"kind": "max_words", "value": 2}
WANTED = Wanted("past", "It ran on; a loss means that it does so again.", rules=(RULE,))
OLD = SuiteItem("old-1", "talk", "s", "How many legs does a dog have?")


def findings(call, *arguments, **named):
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    return [(f.rule, f.message) for f in caught.value.findings]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("refusal", {"kind": "refusal"}),
        ("max_words=30", {"kind": "max_words", "value": 30}),
        ("starts_with=30", {"kind": "starts_with", "value": "30"}),
        ("starts_with=a=b", {"kind": "starts_with", "value": "a=b"}),
        ("contains_any=Oslo", {"kind": "contains_any", "value": ["Oslo"]}),
        ('contains_any=["a","b"]', {"kind": "contains_any", "value": ["a", "b"]}),
        ('times={"text":"a","count":2}', {"kind": "times", "value": {"text": "a", "count": 2}}),
        ("number=2.5", {"kind": "number", "value": 2.5}),
        ("max_words=x", {"kind": "max_words", "value": "x"}),  # check_rules refuses it
        ("max_wrods=3", {"kind": "max_wrods", "value": 3}),
    ],
)
def test_a_rule_is_read_as_its_kind_takes_it(text, rule):
    assert parse_rule(text) == rule


def test_requests_come_from_the_row_or_from_what_was_asked():
    rows = [
        {"id": "a", "prompt": "Hi?", "output": "x"},
        {"id": "b", "prompt": "c0ffee", "answer": "y"},
        {
            "id": "c",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "z"},
            ],
        },
    ]
    asked = {"b": [{"role": "user", "content": "What?"}]}
    assert from_answers(rows, ["c", "b", "a"], file="f", asked=asked) == [
        Failure("c", "Hello", "Be kind.", None),
        Failure("b", "What?", None, "y"),
        Failure("a", "Hi?", None, "x"),
    ]


def test_ids_and_requests_that_are_none():
    turns = [{"role": "user", "content": text} for text in "ab"]
    rows = [{"id": "item-1"}, {"id": "item-2", "messages": turns}, {"id": "item-3", "messages": []}]
    wanted = ["item-9", "item-1", "item-2", "item-3"]
    assert findings(from_answers, rows, wanted, file="f", asked={}) == [
        ("unknown-id", "has no answer 'item-9'"),
        ("no-prompt", "the answer 'item-1' is recorded without what was asked"),
        ("turns", "'item-2' is a conversation of several turns or parts"),
        ("no-prompt", "the answer 'item-3' is recorded without what was asked"),
    ]


@pytest.mark.parametrize(
    "messages", ["hello", 5, {"role": "user"}, ["hello"], [{"role": "user", "content": "q"}, 5]]
)
def test_messages_that_are_none(messages):
    rows = [{"id": "a", "messages": messages}]
    assert findings(from_answers, rows, ["a"], file="f", asked={}) == [
        ("messages", "the messages of 'a' are no list of objects")
    ]


@pytest.mark.parametrize("system", [{"role": "system"}, {"role": "system", "content": None}])
def test_a_system_message_without_a_text_is_none(system):
    rows = [{"id": "a", "messages": [system, {"role": "user", "content": "q"}]}]
    ((rule, _),) = findings(from_answers, rows, ["a"], file="f", asked={})
    assert rule == "turns"


def test_an_id_with_two_answers_is_refused():
    """Planted: the second one would count, and nobody would know."""
    rows = [{"id": "a", "prompt": text} for text in ("one", "two")]
    assert findings(from_answers, rows, ["a"], file="f", asked={}) == [
        ("repeated-id", "has 2 answers 'a'")
    ]


def test_a_line_per_failure():
    failures = [Failure("a", "Say hi.", "Be kind.", "hi hi hi"), Failure("b", "Name a tree.")]
    common = {"slice": "past", "rationale": WANTED.rationale, "rules": [RULE]}
    assert new_lines(failures, WANTED, [OLD], file="f") == [
        {"id": "a", "prompt": "Say hi.", "system": "Be kind.", **common},
        {"id": "b", "prompt": "Name a tree.", **common},
    ]


def test_the_first_choice_is_the_right_one_wherever_it_stands():
    wanted = Wanted("past", "why", choices=("four", "two", "six"))
    (line,) = new_lines([Failure("a", "How many legs has a cow?")], wanted, [], file="f")
    assert sorted(line["choices"]) == ["four", "six", "two"]
    assert line["choices"][line["answer"]] == "four"


def test_repeated_ids_and_broken_rules_are_refused():
    failures = [Failure("old-1", "Say hi."), Failure("b", "Name a tree."), Failure("b", "Go.")]
    wanted = Wanted(" ", "why", rules=({"kind": "max_words", "value": "x"},))
    found = findings(new_lines, failures[:2], wanted, [OLD], file="f")
    assert found[:2] == [
        ("suite-item", "is no text or blank"),
        ("suite-item", "rule 0 (max_words): value must be a positive whole number"),
    ]
    assert found[-1] == ("id", "'old-1' is in suite 'talk' already")
    assert findings(new_lines, failures, WANTED, [], file="f") == [
        ("id", "'b' is in suite 'of this command' already")
    ]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m"])
def test_ids_and_slices_are_texts_of_one_line(name):
    """Planted: a blank id was written, and no suite could be read after."""
    ((rule, _),) = findings(new_lines, [Failure(name, "Say hi.")], WANTED, [], file="f")
    assert rule == "suite-item"
    wanted = Wanted(name or " ", "why", rules=(RULE,))
    found = findings(new_lines, [Failure("a", "Say hi.")], wanted, [], file="f")
    assert {rule for rule, _ in found} == {"suite-item"}


def test_near_duplicates_of_old_and_of_new_items_are_refused():
    near = [Failure("a", "how many legs does a dog have"), Failure("b", "Name a tall old tree.")]
    again = [*near, Failure("c", "Name a tall old tree")]
    assert findings(new_lines, again, WANTED, [OLD], file="f") == [
        ("near-duplicate", "'a' asks nearly what 'old-1' of suite 'talk' asks (Jaccard 0.86)"),
        ("near-duplicate", "'c' asks nearly what 'b' of suite 'new' asks (Jaccard 0.80)"),
    ]


def test_rules_that_the_recorded_answer_passes_are_refused():
    failures = [Failure("a", "Say hi.", answer="hi"), Failure("b", "Name a tree.", answer="o a k")]
    assert findings(new_lines, failures, WANTED, [], file="f") == [
        ("not-caught", "the recorded answer of 'a' passes these rules")
    ]


def test_an_id_of_its_own_depends_on_the_request_alone():
    assert own_id("past", "Hi?") == own_id("past", "Hi?") != own_id("past", "Ho?")
