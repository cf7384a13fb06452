"""What tokenize reports about one split: counts, lengths, and examples as the model sees them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hashtune.chat.limits import curve, distribution, limits_report
from hashtune.records import IGNORE_INDEX, Dropped, Example

SAMPLES = 3
SHOWN_TOKENS = 8


def summarise(
    kept: Sequence[Example],
    dropped: Sequence[Dropped],
    *,
    every: Sequence[Example],
    conversations: int,
    turns: int,
    altered: int,
    tokenizer: Any,
) -> dict[str, Any]:
    """The report of a split; `every` holds kept and dropped examples, rows_in = kept + dropped.

    Args:
        kept: examples that fit.
        dropped: ledger lines of the others.
        every: all examples, for the length distribution.
        conversations: number of conversations read.
        turns: trained turns asked for (`turns_trained` are those that the examples hold).
        altered: conversations whose contents the template changed (blanks, shortened history).
        tokenizer: decodes the samples.

    `length_curve` is the text of a TSV file, not for the report itself.
    """
    tokens, all_tokens = (sum(len(e.input_ids) for e in part) for part in (kept, every))
    trained = sum(example.trained_tokens for example in kept)
    found = distribution(every)
    return {
        "conversations": conversations,
        "rows_in": len(every),
        "kept": len(kept),
        "dropped": dict(sorted(Counter(item.reason for item in dropped).items())),
        "turns": turns,
        "turns_trained": sum(_spans(example) for example in every),
        "tokens": tokens,
        "tokens_lost": all_tokens - tokens,
        "trained_tokens": trained,
        "trained_share": round(trained / tokens, 6) if tokens else 0.0,
        "straddling_rows": sum(example.straddling > 0 for example in kept),
        "altered_conversations": altered,
        "lengths": lengths([len(example.input_ids) for example in every]),
        **limits_report(found),
        "length_curve": curve(found),
        "samples": [_sample(example, tokenizer) for example in kept[:SAMPLES]],
    }


def lengths(values: Sequence[int]) -> dict[str, int]:
    """Nearest-rank percentiles and the largest length, in tokens; empty for no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    ranks = {f"p{q}": ordered[-(-q * len(ordered) // 100) - 1] for q in (50, 90, 99)}
    return {**ranks, "max": ordered[-1]}


def _spans(example: Example) -> int:
    on = [label != IGNORE_INDEX for label in example.labels]
    return sum(now and not before for before, now in zip([False, *on], on, strict=False))


def _sample(example: Example, tokenizer: Any) -> dict[str, Any]:
    trained = [label for label in example.labels if label != IGNORE_INDEX]
    return {
        "id": example.id,
        "first": [tokenizer.decode([token]) for token in trained[:SHOWN_TOKENS]],
        "last": tokenizer.decode(trained[-1:]),
    }
