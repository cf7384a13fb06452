"""What a max_seq_len would cost: examples, turns and tokens lost for some limits, and a suggestion.

Counted by length, not by row: what a limit keeps more than a limit of one token less.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

SMALLEST = 64
MULTIPLE = 64  # suggested limits are multiples of this many tokens
ACCEPTED_LOSS = 0.01  # of the trained tokens
CURVE_POINTS = 64
QUANTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Gains:
    """By length: the examples, trained turns, tokens and trained tokens that a limit of so many
    tokens keeps and a smaller one does not. Those of chunks add up."""

    examples: Counter[int] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    trained: Counter[int] = field(default_factory=Counter)

    def count(self, at: int, *, examples: int, turns: int, tokens: int, trained: int) -> None:
        """Count in what a limit of `at` tokens keeps more."""
        self.examples[at] += examples
        self.turns[at] += turns
        self.tokens[at] += tokens
        self.trained[at] += trained

    def add(self, other: "Gains") -> None:
        """Count another chunk in."""
        self.examples.update(other.examples)
        self.turns.update(other.turns)
        self.tokens.update(other.tokens)
        self.trained.update(other.trained)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distinct lengths, ascending; what a limit of the k-th of them keeps: examples, trained
    turns, tokens and trained tokens (one entry more than lengths, the first is 0)."""

    lengths: Sequence[int]
    examples: Sequence[int]
    turns: Sequence[int]
    tokens: Sequence[int]
    trained: Sequence[int]


def distribution(gains: Gains) -> Distribution:
    """The same as sums up to each length."""
    lengths = sorted(gains.examples)

    def sums(counts: Counter[int]) -> list[int]:
        return list(accumulate((counts[size] for size in lengths), initial=0))

    return Distribution(
        lengths=lengths,
        examples=sums(gains.examples),
        turns=sums(gains.turns),
        tokens=sums(gains.tokens),
        trained=sums(gains.trained),
    )


def read_distribution(table: Mapping[str, Sequence[int]]) -> Distribution:
    """The distribution that build/tokenize/lengths.json holds of a split and an over_length."""
    return Distribution(**table)


def loss(found: Distribution, limit: int) -> dict[str, int]:
    """What a limit of so many tokens loses."""
    kept = bisect_right(found.lengths, limit)
    return {
        "max_seq_len": limit,
        "examples_lost": found.examples[-1] - found.examples[kept],
        "turns_lost": found.turns[-1] - found.turns[kept],
        "tokens_lost": found.tokens[-1] - found.tokens[kept],
        "trained_tokens_lost": found.trained[-1] - found.trained[kept],
    }


def candidates(found: Distribution) -> list[int]:
    """Powers of two from 64 to the first that loses nothing, and the nearest-rank percentiles 50,
    90 and 99 and the largest length, ascending."""
    if not found.lengths:
        return []
    powers = [SMALLEST]
    while powers[-1] < found.lengths[-1]:
        powers.append(powers[-1] * 2)
    return sorted({*powers, *percentiles(found).values()})


def percentiles(found: Distribution) -> dict[str, int]:
    """Nearest-rank percentiles and the largest length, in tokens; empty for no examples."""
    if not found.lengths:
        return {}
    ranks = {f"p{q}": -(-q * found.examples[-1] // 100) for q in QUANTILES}
    values = {name: found.lengths[bisect_left(found.examples, r) - 1] for name, r in ranks.items()}
    return {**values, "max": found.lengths[-1]}


def suggestion(found: Distribution) -> dict[str, int]:
    """The smallest multiples of 64 that lose nothing, and at most 1 % of the trained tokens."""
    if not found.lengths:
        return {}
    limit = whole = _round_up(found.lengths[-1])
    accepted = ACCEPTED_LOSS * found.trained[-1]
    while limit > MULTIPLE and loss(found, limit - MULTIPLE)["trained_tokens_lost"] <= accepted:
        limit -= MULTIPLE
    return {"loses_nothing": whole, "loses_one_percent": limit}


def _round_up(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE


def limits_report(whole: Distribution, split: Distribution) -> dict[str, Any]:
    """The table of candidate limits and the suggestion, for reports/tokenize.json: where a longer
    example is dropped whole, and under `split` where it is cut behind a turn."""
    limits = candidates(whole)
    dropped, cut = (
        {
            "limits": [loss(found, limit) for limit in limits],
            "suggested_max_seq_len": suggestion(found),
        }
        for found in (whole, split)
    )
    return {**dropped, "split": cut}


def curve(found: Distribution) -> str:
    """A TSV of the shares of examples and trained tokens that each limit keeps, at up to 64 evenly
    spaced limits, where longer examples are dropped whole: what `dvc plots` draws."""
    lines = ["max_seq_len\texamples\ttrained_tokens"]
    longest = found.lengths[-1] if found.lengths else 0
    points = {-(-longest * point // CURVE_POINTS) for point in range(1, CURVE_POINTS + 1)}
    for limit in sorted(points - {0}):
        lost = loss(found, limit)
        shares = (
            1 - lost["examples_lost"] / found.examples[-1],
            1 - lost["trained_tokens_lost"] / max(1, found.trained[-1]),
        )
        lines.append("\t".join([str(limit), *(f"{share:.6f}" for share in shares)]))
    return "\n".join(lines) + "\n"
