"""The report of a split: rows in = kept + dropped, lengths, samples."""

from collections.abc import Callable
from typing import Any

from hashtune.chat.limits import curve, distribution
from hashtune.chat.summary import summarise, tally
from hashtune.records import Dropped, Example


def test_counts(byte_tokenizer: Callable[..., Any]) -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer("hi yo</s>", add_special_tokens=False)["input_ids"]
    kept = Example("a", "a", "s", ids, [-100] * 3 + ids[3:], straddling=1)
    long = Example("b", "b", "s", [1] * 20, [-100, 1, -100, 1] * 5)
    dropped = [Dropped("b", "s", 2, "over_length")]
    total = tally([], [], every=[], conversations=0, turns=0, altered=0, escaped=0)
    total.add(tally([kept], [], every=[kept], conversations=1, turns=1, altered=0, escaped=0))
    total.add(tally([], dropped, every=[long], conversations=1, turns=10, altered=0, escaped=0))
    report = summarise(total, [kept], tokenizer=tokenizer)
    assert report == {
        "conversations": 2,
        "rows_in": 2,
        "kept": 1,
        "dropped": {"over_length": 1},
        "turns": 11,
        "turns_trained": 11,
        "tokens": 6,
        "tokens_lost": 20,
        "trained_tokens": 3,
        "trained_share": 0.5,
        "straddling_rows": 1,
        "altered_conversations": 0,
        "escaped_conversations": 0,
        "lengths": {"p50": 6, "p90": 20, "p99": 20, "max": 20},
        "limits": [
            {
                "max_seq_len": size,
                "examples_lost": lost,
                "tokens_lost": t,
                "trained_tokens_lost": t // 2,
            }
            for size, lost, t in ((6, 1, 20), (20, 0, 0), (64, 0, 0))
        ],
        "suggested_max_seq_len": {"loses_nothing": 64, "loses_one_percent": 64},
        "length_curve": curve(distribution({6: 1, 20: 1}, {6: 3, 20: 10})),
        "samples": [{"id": "a", "first": ["y", "o", "</s>"], "last": "</s>"}],
    }
