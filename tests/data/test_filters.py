"""Every limit: one row on it stays, one row beyond it goes with the limit's name."""

import pytest

from hashtune.data.filters import (
    check_limits,
    filter_rows,
    letter_share,
    measures,
    repeated_share,
    word_runs,
)
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import Filters


def limits(**given) -> Filters:
    return Filters(**{**dict.fromkeys(Filters.model_fields), **given})


def talk(answer, user="12345", line=1):
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
    return Conversation(f"c{line}", "s", messages, line)


@pytest.mark.parametrize(
    ("limit", "value", "fits", "breaks", "detail"),
    [
        ("min_answer_chars", 3, "abc", "ab", "2 is below 3"),
        ("max_answer_chars", 3, "abc", "abcd", "4 is above 3"),
        ("min_chars", 8, "abc", "ab", "7 is below 8"),
        ("max_chars", 8, "abc", "abcd", "9 is above 8"),
        ("min_letter_share", 0.75, "a b c 1", "ab12", "0.5 is below 0.75"),
        ("max_repeated_line_share", 0.5, "a\n\n a\nb\nb", "a\na\na", "0.6667 is above 0.5"),
        ("max_repeated_word_share", 0.5, "a b a b a b", "a a a a a", "0.6667 is above 0.5"),
    ],
)
def test_a_limit_drops_what_is_beyond_it(limit, value, fits, breaks, detail):
    rows = [talk(fits, line=1), talk(breaks, line=2)]
    kept, dropped = filter_rows(rows, limits(**{limit: value}))
    assert (kept, dropped) == ([rows[0]], [Dropped("c2", "s", 2, limit, detail)])
    assert filter_rows(rows, limits()) == (rows, [])


def test_letters_of_every_script_are_letters():
    assert letter_share("天気は晴れ") == 1.0
    assert letter_share("नमस्ते") == 1.0
    assert letter_share("1 + 1 = b") == 0.2
    assert letter_share(" \n") == 0.0


def test_measures_of_short_and_missing_answers():
    assert (word_runs("a b"), repeated_share([])) == ([], 0.0)
    call = Conversation("c", "s", [{"role": "assistant", "content": None, "tool_calls": [{}]}])
    assert measures(call) == {"chars": 0}
    strict = limits(min_answer_chars=5, min_letter_share=1.0)
    assert filter_rows([call], strict) == ([call], [])


def test_the_first_broken_limit_is_the_reason():
    [row] = filter_rows([talk("1")], limits(min_answer_chars=2, min_letter_share=0.5))[1]
    assert row.reason == "min_answer_chars"


def test_limits_that_no_row_can_meet_are_found():
    given = limits(min_chars=9, max_chars=8, min_answer_chars=4, max_answer_chars=4)
    [finding] = check_limits(given)
    assert str(finding) == "cleaning.filters.min_chars: 9 is above max_chars 8 [filters]"
    assert check_limits(limits(min_chars=9)) == []


def test_every_limit_has_a_measure():
    """Planted: a new limit without a measure would be off for ever."""
    assert {name[4:] for name in Filters.model_fields} <= set(measures(talk("x")))


def test_a_plain_text_is_measured_as_a_whole_and_is_no_answer():
    text = Conversation("c", "s", [{"role": "text", "content": "ab12\nab12"}])
    assert measures(text) == {
        "chars": 9,
        "letter_share": 0.5,
        "repeated_line_share": 0.5,
        "repeated_word_share": 0.0,
    }
    kept, dropped = filter_rows([text], limits(min_answer_chars=99, max_repeated_line_share=0.4))
    assert (kept, [row.reason for row in dropped]) == ([], ["max_repeated_line_share"])
