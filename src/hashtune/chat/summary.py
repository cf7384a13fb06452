"""What tokenize reports about one split: counts, lengths, and examples as the model sees them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hashtune.chat.columns import packed
from hashtune.chat.limits import curve, distribution, limits_report, percentiles
from hashtune.records import IGNORE_INDEX, Dropped, Example

SAMPLES = 3
SHOWN_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of some conversations; those of chunks add up to those of the split.

    `dropped` counts by reason, `lengths` all examples (kept and dropped) by their tokens, and
    `trained` the trained tokens of those.
    """

    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    trained: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Count another chunk in."""
        self.counts.update(other.counts)
        self.dropped.update(other.dropped)
        self.lengths.update(other.lengths)
        self.trained.update(other.trained)


def tally(
    kept: Sequence[Example],
    dropped: Sequence[Dropped],
    *,
    every: Sequence[Example],
    conversations: int,
    turns: int,
    altered: int,
    escaped: int,
) -> Tally:
    """Count a chunk; `every` holds kept and dropped examples.

    Args:
        kept: examples that fit.
        dropped: ledger lines of the others.
        every: all examples, for the length distribution.
        conversations: number of conversations read.
        turns: trained turns asked for (`turns_trained` are those that the examples hold).
        altered: conversations whose contents the template changed (blanks, shortened history).
        escaped: conversations with control tokens in contents that became plain text.
    """
    runs, labelled = _trained(every)
    counts = {
        "conversations": conversations,
        "kept": len(kept),
        "turns": turns,
        "turns_trained": runs,
        "tokens": sum(len(example.input_ids) for example in kept),
        "trained_tokens": sum(example.trained_tokens for example in kept),
        "straddling_rows": sum(example.straddling > 0 for example in kept),
        "altered_conversations": altered,
        "escaped_conversations": escaped,
    }
    sizes, trained = Counter[int](), Counter[int]()
    for example, count in zip(every, labelled, strict=True):
        sizes[len(example.input_ids)] += 1
        trained[len(example.input_ids)] += count
    return Tally(Counter(counts), Counter(item.reason for item in dropped), sizes, trained)


def summarise(total: Tally, samples: Sequence[Example], *, tokenizer: Any) -> dict[str, Any]:
    """The report of a split: rows_in = kept + dropped; `tokenizer` decodes the samples.

    `length_curve` is the text of a TSV file, not for the report itself.
    """
    found = distribution(total.lengths, total.trained)
    counts = {key: total.counts[key] for key in total.counts}
    tokens, trained = total.counts["tokens"], total.counts["trained_tokens"]
    all_tokens = sum(length * number for length, number in total.lengths.items())
    return {
        **counts,
        "rows_in": total.lengths.total(),
        "dropped": dict(sorted(total.dropped.items())),
        "tokens_lost": all_tokens - tokens,
        "trained_share": round(trained / tokens, 6) if tokens else 0.0,
        "lengths": percentiles(found),
        **limits_report(found),
        "length_curve": curve(found),
        "samples": [_sample(example, tokenizer) for example in samples],
    }


def _trained(examples: Sequence[Example]) -> tuple[int, list[int]]:
    """How many runs of trained tokens there are, and each example's number of trained tokens.

    An unlabelled token before, between and after the examples keeps their runs apart.
    """
    apart = [[IGNORE_INDEX], *([*example.labels, IGNORE_INDEX] for example in examples)]
    trained = np.frombuffer(packed(apart), np.int32) != IGNORE_INDEX
    between = np.cumsum([0, *(len(example.labels) + 1 for example in examples)])
    counts = np.diff(np.cumsum(trained)[between])
    return int(np.count_nonzero(trained[1:] & ~trained[:-1])), counts.tolist()


def _sample(example: Example, tokenizer: Any) -> dict[str, Any]:
    trained = [label for label in example.labels if label != IGNORE_INDEX]
    return {
        "id": example.id,
        "first": [tokenizer.decode([token]) for token in trained[:SHOWN_TOKENS]],
        "last": tokenizer.decode(trained[-1:]),
    }
