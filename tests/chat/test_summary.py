"""The report of a split: rows in = kept + dropped, lengths, samples."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from hashtune.chat.chunks import tokenize_rows
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.limits import Gains, curve, distribution, loss
from hashtune.chat.over_length import fit
from hashtune.chat.summary import Tally, summarise, tally
from hashtune.records import Dropped, Example


def test_counts(byte_tokenizer: Callable[..., Any]) -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer("hi yo</s>", add_special_tokens=False)["input_ids"]
    kept = Example("a", "a", "s", ids, [-100] * 3 + ids[3:], straddlers=(2,))
    long = Example("b", "b", "s", [1] * 20, [-100, 1, -100, 1] * 5)
    dropped = [Dropped("b", "s", 2, "over_length")]
    total = tally([], [], every=[], texts=[], conversations=0, turns=0, altered=0, escaped=0)
    total.add(
        tally(
            [kept], [], every=[kept], texts=[False], conversations=1, turns=1, altered=0, escaped=0
        )
    )
    total.add(
        tally(
            [],
            dropped,
            every=[long],
            texts=[False],
            conversations=1,
            turns=10,
            altered=0,
            escaped=0,
        )
    )
    report = summarise(total, [kept], tokenizer=tokenizer)
    found = Gains()
    found.count(6, examples=1, turns=1, tokens=6, trained=3)
    found.count(20, examples=1, turns=10, tokens=20, trained=10)
    assert report == {
        "conversations": 2,
        "rows_in": 2,
        "examples": {"in": 2, "kept": 1, "dropped": {"over_length": 1}},
        "kept": 1,
        "cut": 0,
        "dropped": {"over_length": 1},
        "answers_without_prompt": 0,
        "answers_masked": 0,
        "turns": 11,
        "turns_trained": 11,
        "turns_lost": 10,
        "tokens": 6,
        "tokens_lost": 20,
        "trained_tokens": 3,
        "trained_tokens_lost": 10,
        "trained_share": 0.5,
        "straddling_rows": 1,
        "altered_conversations": 0,
        "escaped_conversations": 0,
        "lengths": {"p50": 6, "p90": 20, "p99": 20, "max": 20},
        "limits": [
            {
                "max_seq_len": size,
                "examples_lost": lost,
                "turns_lost": t // 2,
                "tokens_lost": t,
                "trained_tokens_lost": t // 2,
            }
            for size, lost, t in ((6, 1, 20), (20, 0, 0), (64, 0, 0))
        ],
        "suggested_max_seq_len": {"loses_nothing": 64, "loses_one_percent": 64},
        "split": {  # turns end at tokens 2, 4, 6, ...: of the long one 3 fit within 6
            "limits": [
                {
                    "max_seq_len": size,
                    "examples_lost": 0,
                    "turns_lost": lost,
                    "tokens_lost": 2 * lost,
                    "trained_tokens_lost": lost,
                }
                for size, lost in ((6, 7), (20, 0), (64, 0))
            ],
            "suggested_max_seq_len": {"loses_nothing": 64, "loses_one_percent": 64},
        },
        "length_curve": curve(distribution(found)),
        "length_table": {
            "drop": {
                "lengths": [6, 20],
                "examples": [0, 1, 2],
                "turns": [0, 1, 11],
                "tokens": [0, 6, 26],
                "trained": [0, 3, 13],
            },
            "split": {  # the short one ends with its turn, the long one has ten
                "lengths": [2, 4, 6, 8, 10, 12, 14, 16, 18, 20],
                "examples": [0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2],
                "turns": [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11],
                "tokens": [0, 2, 4, 12, 14, 16, 18, 20, 22, 24, 26],
                "trained": [0, 1, 2, 6, 7, 8, 9, 10, 11, 12, 13],
            },
        },
        "samples": [{"id": "a", "first": ["y", "o", "</s>"], "last": "</s>"}],
    }


def of_turns(name: str, sizes: list[tuple[int, int]], after: int = 0) -> Example:
    """Turns of (untrained tokens, trained ones), each trained run ended by the stop 9."""
    ids = [i for prompt, body in sizes for i in [5] * (prompt + body - 1) + [9]] + [5] * after
    masks = [mask for prompt, body in sizes for mask in [False] * prompt + [True] * body] + [
        False
    ] * after
    labels = [i if mask else -100 for i, mask in zip(ids, masks, strict=True)]
    return Example(name, name, "s", ids, labels)


def counted(
    every: list[Example], limit: int, policy: Literal["drop", "split"], texts: list[bool]
) -> Tally:
    lines = {example.id: 1 for example in every}
    kept, ledger = fit(every, max_seq_len=limit, over_length=policy, lines=lines, stop_ids=((9,),))
    turns = sum(len(example.labels) for example in every)
    return tally(
        kept,
        ledger,
        every=every,
        texts=texts,
        conversations=len(every),
        turns=turns,
        altered=0,
        escaped=0,
    )


LOST = ("turns_lost", "tokens_lost", "trained_tokens_lost")


class Letters:
    """Decodes for the report's samples."""

    def decode(self, ids: list[int]) -> str:
        return "x" * len(ids)


def test_what_split_loses() -> None:
    """a: turns end at 5, 10 and 14 of 16; b: at 12 of 12."""
    every = [of_turns("a", [(3, 2), (2, 3), (1, 3)], after=2), of_turns("b", [(8, 4)])]
    report = summarise(counted(every, 11, "split", [False, False]), [], tokenizer=Letters())
    assert (report["rows_in"], report["kept"], report["cut"]) == (2, 1, 1)
    assert report["dropped"] == {"over_length": 1}
    assert (report["tokens"], report["tokens_lost"]) == (10, 6 + 12)
    assert (report["trained_tokens"], report["trained_tokens_lost"]) == (5, 3 + 4)
    assert (report["turns_trained"], report["turns_lost"]) == (4, 1 + 1)
    assert report["lengths"]["max"] == 16  # of the examples as they were
    assert loss(distribution(counted(every, 11, "split", [False, False]).split), 11) == {
        "max_seq_len": 11,
        "examples_lost": 1,
        "turns_lost": 2,
        "tokens_lost": 18,
        "trained_tokens_lost": 7,
    }


def test_a_split_plain_text_loses_nothing() -> None:
    text = of_turns("t", [(1, 19)])
    found = distribution(counted([text], 30, "split", [True]).split)
    assert loss(found, 2) == {"max_seq_len": 2, "examples_lost": 0} | dict.fromkeys(LOST, 0)


@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=5,
    ),
    chosen=st.integers(1, 26),
    other=st.integers(1, 26),
)
def test_the_table_says_what_fit_loses_at_any_limit_under_both_policies(
    rows: list[tuple[list[tuple[int, int]], int]], chosen: int, other: int
) -> None:
    """The table of a run with one limit and policy holds for every other limit."""
    every = [of_turns(str(n), sizes, after) for n, (sizes, after) in enumerate(rows)]
    plain = [False] * len(every)
    seen = counted(every, chosen, "split", plain)
    for policy, gains in (("drop", seen.whole), ("split", seen.split)):
        really = counted(every, other, policy, plain)  # type: ignore[arg-type]
        report = summarise(really, [], tokenizer=Letters())
        said = loss(distribution(gains), other)
        assert report["rows_in"] == report["kept"] + sum(report["dropped"].values())
        assert {name: said[name] for name in LOST} == {name: report[name] for name in LOST}
        assert said["examples_lost"] == sum(report["dropped"].values())


def test_answers_without_loss_are_counted(
    make_template: Callable[..., Any], sources: dict[str, str], stops_of: Callable[..., Any]
) -> None:
    """Both rows begin with an answer; one has a masked and a trained one, one a trained one."""
    template = make_template(sources["plain"])
    tokenize = partial(
        tokenize_conversation,
        template=template,
        stops=stops_of(template),
        loss_on="assistant",
        unstable="error",
        mismatch="error",
    )
    first = {"role": "assistant", "content": "hello"}
    rows = [
        [first, *turn("hi", "yo", train=False), *turn("and?", "ok")],
        [first, *turn("hi", "yo")],
    ]
    chunk = tokenize_rows(
        [
            {"id": f"c{n}", "source": "s", "line": n, "messages": json.dumps(messages)}
            for n, messages in enumerate(rows, 1)
        ],
        tokenize=tokenize,
        limit=partial(fit, max_seq_len=100, over_length="drop"),
    )
    report = summarise(chunk.counts, chunk.samples, tokenizer=template.tokenizer)
    assert (report["answers_without_prompt"], report["answers_masked"]) == (2, 1)
    assert (report["turns"], report["turns_trained"]) == (2, 2)


def turn(question: str, answer: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer, **more},
    ]
