"""Declared text forms: each rule alone, nothing without a rule, counted per rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.messages import is_blank
from hashtune.data.normalisation import change_conversations, change_text
from hashtune.data.schemas import content_id
from hashtune.records import Conversation
from hashtune.spec.schema import Normalise


def rules(newlines="none", unicode="none", whitespace="none") -> Normalise:
    return Normalise(newlines=newlines, unicode=unicode, whitespace=whitespace)


WRITTEN = " \ufb01le\u00a0 cafe\u0301\r\n\t x\r\r\n\n\ny  \n"


@pytest.mark.parametrize(
    ("rule", "expected", "changed"),
    [
        (rules(), WRITTEN, []),
        (rules("lf"), " \ufb01le\u00a0 cafe\u0301\n\t x\n\n\n\ny  \n", ["newlines"]),
        (rules(unicode="nfc"), " \ufb01le\u00a0 caf\u00e9\r\n\t x\r\r\n\n\ny  \n", ["unicode"]),
        (rules(unicode="nfkc"), " file  caf\u00e9\r\n\t x\r\r\n\n\ny  \n", ["unicode"]),
        (rules(whitespace="trim"), WRITTEN.strip(), ["whitespace"]),
        (
            rules("lf", whitespace="collapse"),
            "\ufb01le cafe\u0301\nx\n\ny",
            ["newlines", "whitespace"],
        ),
        (
            rules("lf", "nfkc", "collapse"),
            "file caf\u00e9\nx\n\ny",
            ["newlines", "unicode", "whitespace"],
        ),
    ],
)
def test_each_rule_does_what_it_says(rule, expected, changed):
    assert change_text(WRITTEN, rule) == (expected, changed)


ALL = st.builds(
    rules,
    st.sampled_from(["none", "lf"]),
    st.sampled_from(["none", "nfc", "nfkc"]),
    st.sampled_from(["none", "trim", "collapse"]),
)
# every kind of blank and line end, control and zero-width characters, marks that reorder or
# compose anew, letters that NFKC takes apart
ODD = " \n\r\t\v\f\x00\x1c\x1f\x85\xa0\u2003\u2028\u2029\u3000\u200b\u200d\ufeff\xad"
ODD += "\u0301\u0323\u0345\u0f71\u1100\u1161\u11a8\u1e9b\u00a8\u2a74\ufdfa\uffa0ﬁ½①Å"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD))


@settings(deadline=None)  # a busy machine is no fault
@given(text=TEXTS, rule=ALL)
def test_a_second_pass_changes_nothing_and_no_text_becomes_blank(text, rule):
    once, changed = change_text(text, rule)
    assert change_text(once, rule) == (once, [])
    assert bool(changed) == (once != text)
    assert is_blank(once) == is_blank(text)


@settings(deadline=None)  # a busy machine is no fault
@given(text=TEXTS)
def test_only_whitespace_goes_when_unicode_is_not_touched(text):
    once, _ = change_text(text, rules("lf", "none", "collapse"))
    assert "".join(once.split()) == "".join(text.split())


def test_conversations_are_counted_by_rule_and_get_the_id_of_their_new_content():
    plain = Conversation("p", "s", [{"role": "user", "content": "ok"}], 1)
    messy = Conversation(
        "m",
        "s",
        [
            {"role": "user", "content": " a "},
            {"role": "assistant", "content": None, "tool_calls": [{"name": " f "}]},
            {"role": "assistant", "content": "b ", "reasoning_content": "e\u0301 "},
            {"role": "assistant", "content": "c", "thinking": "t ", "reasoning": " r"},
        ],
        2,
        "g",
    )
    [same, changed], counts = change_conversations([plain, messy], rules("lf", "nfc", "trim"))
    assert same is plain
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": " f "}]},
        {"role": "assistant", "content": "b", "reasoning_content": "\u00e9"},
        {"role": "assistant", "content": "c", "thinking": "t", "reasoning": "r"},
    ]
    assert changed == Conversation(content_id(messages), "s", messages, 2, "g")
    assert messy.messages[0]["content"] == " a "  # the loaded row is not written to
    assert counts == {"whitespace": 1, "unicode": 1}
