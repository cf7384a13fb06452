"""Too long: dropped whole, refused, or cut behind the last trained turn that fits; cuts proven."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.chat import over_length
from hashtune.chat.examples import Tokenized
from hashtune.chat.over_length import beginning, fit, prove_cut, turn_ends
from hashtune.errors import InputError
from hashtune.records import Dropped, Example

STOP = 9
LINES = {"c": 3}


def examples(*lengths: int) -> list[Example]:
    return [
        Example(f"e{n}", f"e{n}", "triage", [5] * n, [-100] * (n - 3) + [5] * 3) for n in lengths
    ]


def turns(*sizes: tuple[int, int], after: int = 0) -> Example:
    """Turns of (untrained tokens, trained ones): 5s, the last trained one of each is the stop; then
    untrained tokens."""
    ids, labels = [], []
    for prompt, body in sizes:
        ids += [5] * (prompt + body - 1) + [STOP]
        labels += [-100] * prompt + [5] * (body - 1) + [STOP]
    return Example("c", "c", "triage", ids + [5] * after, labels + [-100] * after)


def split(example: Example, limit: int) -> tuple[list[Example], list[Dropped]]:
    return fit([example], max_seq_len=limit, over_length="split", lines=LINES, stop_ids=((STOP,),))


def test_c33_over_length_is_dropped_whole_with_a_ledger_line() -> None:
    lines = {"e13": 1, "e10": 2}
    kept, dropped = fit(examples(13, 10), max_seq_len=10, over_length="drop", lines=lines)
    assert [example.id for example in kept] == ["e10"]
    detail = (
        "0 supervised tokens after truncation to 10 (prompt alone is 10), end marker lost: "
        "13 tokens, 3 of them supervised, exceed 10"
    )
    assert dropped == [Dropped("e13", "triage", 1, "over_length", detail)]


def test_over_length_as_an_error_lists_all() -> None:
    lines = {"e13": 1, "e10": 2, "e12": 3}
    with pytest.raises(InputError) as caught:
        fit(examples(13, 10, 12), max_seq_len=10, over_length="error", lines=lines)
    assert [(f.file, f.line) for f in caught.value.findings] == [("triage", 1), ("triage", 3)]
    assert caught.value.findings[0].fix == (
        "raise data.max_seq_len, or set data.over_length to drop or split (`hashtune inspect "
        "--lengths` then tells what other values would lose)"
    )


@pytest.mark.parametrize(
    ("limit", "kept", "reason"),
    [
        (16, 16, None),
        (15, 14, "over_length_cut"),  # only what follows the last turn is cut off
        (14, 14, "over_length_cut"),
        (13, 10, "over_length_cut"),
        (10, 10, "over_length_cut"),
        (9, 5, "over_length_cut"),
        (5, 5, "over_length_cut"),
        (4, None, "over_length"),
    ],
)
def test_the_longest_beginning_of_whole_turns_that_fits(
    limit: int, kept: int | None, reason: str | None
) -> None:
    """Turns end behind tokens 5, 10 and 14 of 16."""
    whole = turns((3, 2), (2, 3), (1, 3), after=2)
    parts, ledger = split(whole, limit)
    assert [len(part.input_ids) for part in parts] == ([kept] if kept else [])
    for part in parts:
        assert part.input_ids == whole.input_ids[:kept]
        assert part.labels == whole.labels[:kept]
    assert [line.reason for line in ledger] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("limit", "detail"),
    [
        (
            9,
            "16 tokens exceed 9: the first 5 are kept; "
            "trained turns lost: 2 to 3 of 3, 6 of 8 trained tokens",
        ),
        (
            13,
            "16 tokens exceed 13: the first 10 are kept; "
            "trained turns lost: 3 of 3, 3 of 8 trained tokens",
        ),
        (15, "16 tokens exceed 15: the first 14 are kept; no trained turn is lost"),
        (
            4,
            "1 supervised tokens after truncation to 4 (prompt alone is 3), end marker lost: "
            "16 tokens, 8 of them supervised, exceed 4",
        ),
    ],
)
def test_the_ledger_names_what_is_lost(limit: int, detail: str) -> None:
    _, (line,) = split(turns((3, 2), (2, 3), (1, 3), after=2), limit)
    assert (line.id, line.source, line.line, line.detail) == ("c", "triage", 3, detail)


def test_cut_and_dropped_ones_keep_their_order() -> None:
    first, second = turns((3, 2), (2, 3)), replace(turns((8, 2)), id="d")
    kept, ledger = fit(
        [first, second, first],
        max_seq_len=8,
        over_length="split",
        lines=LINES,
        stop_ids=((STOP,),),
    )
    assert [len(example.input_ids) for example in kept] == [5, 5]
    assert [(line.id, line.reason) for line in ledger] == [
        ("c", "over_length_cut"),
        ("d", "over_length"),
        ("c", "over_length_cut"),
    ]


ROUNDS = ("hi", "yo", "?", "ok", "n", "no")


@pytest.mark.parametrize("limit", range(5, 25))
def test_a_cut_conversation_is_the_conversation_of_its_first_turns(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    stops_of: Callable[..., Any],
    *,
    limit: int,
) -> None:
    """<s> <|user|> h i <|end|> <|assistant|> y o <|end|>: 9 tokens, then 16, then 23."""
    template = make_template(sources["plain"])
    (whole,) = tokenized(template, talk(*ROUNDS)).examples
    assert len(whole.input_ids) == 23 and turn_ends(whole.labels) == [9, 16, 23]
    stop_ids = stops_of(template).ids
    kept, _ = fit([whole], max_seq_len=limit, over_length="split", lines=LINES, stop_ids=stop_ids)
    rounds = sum(end <= limit for end in (9, 16, 23))
    wanted = tokenized(template, talk(*ROUNDS[: 2 * rounds])).examples if rounds else []
    assert kept == wanted


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        # the next role's header is the stop: <|user|> h i <|assistant|> y o <|user|>
        ("headers", [7, 12, 17]),
        # three ids are one stop: u : h i # # # a : y o # # #
        (
            "{% for m in messages %}{{ m.role[0] + ':' + m.content + '###' }}{% endfor %}"
            "{% if add_generation_prompt %}a:{% endif %}",
            [14, 27, 40],
        ),
    ],
)
def test_a_stop_is_kept_whole(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    stops_of: Callable[..., Any],
    *,
    text: str,
    ends: list[int],
) -> None:
    template = make_template(sources.get(text, text))
    declared = ["###"] if text not in sources else ["<|user|>"]
    (whole,) = tokenized(template, talk(*ROUNDS), *declared).examples
    assert turn_ends(whole.labels) == ends
    stop_ids = stops_of(template, *declared).ids
    for limit in range(ends[0], ends[-1]):
        (part,), _ = fit(
            [whole], max_seq_len=limit, over_length="split", lines=LINES, stop_ids=stop_ids
        )
        rounds = sum(end <= limit for end in ends)
        assert [part] == tokenized(template, talk(*ROUNDS[: 2 * rounds]), *declared).examples


def test_a_straddler_of_a_lost_turn_is_not_counted(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    merging = byte_tokenizer(merges=[("Ċ", "Ċ")], split=False)
    template = make_template(sources["chatml"], tokenizer=merging)
    (late,) = tokenized(template, talk("hi", "yo", "more", "\nyo")).examples
    (early,) = tokenized(template, talk("hi", "\nyo", "more", "yo")).examples
    assert late.straddling == early.straddling == 1
    for example, left in ((late, 0), (early, 1)):
        part = beginning(example, len(example.input_ids) - 2)
        assert part is not None and part.straddling == left


def earlier(example: Example, limit: int) -> int:
    return good(example, limit) - 1


def later(example: Example, limit: int) -> int:
    return good(example, limit) + 1


def at_the_limit(_: Example, limit: int) -> int:
    return limit


def beyond(example: Example, limit: int) -> int:
    return next(end for end in turn_ends(example.labels) if end > limit)


def turn_too_few(example: Example, limit: int) -> int:
    return [end for end in turn_ends(example.labels) if end <= limit][-2]


def inner_stop(*_: Any) -> int:
    return 8


def good(example: Example, limit: int) -> int:
    return [end for end in turn_ends(example.labels) if end <= limit][-1]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (good, []),
        (
            earlier,
            [
                "the cut at token 9 is not the end of a trained turn",
                "the cut at token 9 loses the trained turn that ends at 10",
            ],
        ),
        (later, ["the cut at token 11 is not the end of a trained turn"]),
        (at_the_limit, ["the cut at token 12 is not the end of a trained turn"]),
        (beyond, ["14 tokens are kept, 12 were allowed"]),
        (turn_too_few, ["the cut at token 5 loses the trained turn that ends at 10"]),
        (
            inner_stop,
            [
                "the cut at token 8 is not the end of a trained turn",
                "the cut at token 8 loses the trained turn that ends at 10",
            ],
        ),
    ],
)
def test_planted_faults_of_the_cut_are_refused(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Example, int], int], said: list[str]
) -> None:
    """Turns end behind tokens 5, 10 and 14; token 8 is a stop inside the second answer."""
    whole = turns((3, 2), (2, 3), (1, 3), after=2)
    whole.input_ids[7] = whole.labels[7] = STOP

    def planted(example: Example, limit: int) -> Example:
        end = fault(example, limit)
        return replace(example, input_ids=example.input_ids[:end], labels=example.labels[:end])

    monkeypatch.setattr(over_length, "beginning", planted)
    if not said:
        assert [len(part.input_ids) for part in split(whole, 12)[0]] == [10]
        return
    with pytest.raises(InputError) as caught:
        split(whole, 12)
    assert [f.message for f in caught.value.findings] == said
    assert {(f.rule, f.file, f.line) for f in caught.value.findings} == {("proof", "triage", 3)}


def test_a_cut_that_is_no_beginning_is_refused() -> None:
    whole = turns((3, 2), (2, 3))
    part = beginning(whole, 8)
    assert part is not None and list(prove_cut(whole, part, 8, ((STOP,),))) == []
    unlabelled = replace(part, labels=[-100] * 5)
    for wrong in (unlabelled, replace(part, input_ids=[6, *part.input_ids[1:]])):
        (said,) = prove_cut(whole, wrong, 8, ((STOP,),))
        assert said == "what is kept is no beginning of the example"


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=5),
    after=st.integers(0, 2),
    limit=st.integers(1, 32),
)
def test_every_kept_turn_is_whole_and_no_further_one_would_fit(
    sizes: list[tuple[int, int]], after: int, limit: int
) -> None:
    whole = turns(*sizes, after=after)
    ends = list(itertools.accumulate(prompt + body for prompt, body in sizes))
    assert turn_ends(whole.labels) == ends
    kept, ledger = split(whole, limit)
    fitting = [end for end in ends if end <= limit]
    if len(whole.input_ids) <= limit:
        assert (kept, ledger) == ([whole], [])
    elif fitting:
        (part,), (line,) = kept, ledger
        assert part.labels == whole.labels[: fitting[-1]] and line.reason == "over_length_cut"
    else:
        assert kept == [] and [line.reason for line in ledger] == ["over_length"]
