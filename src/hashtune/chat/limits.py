"""What a max_seq_len would cost: examples and tokens lost for some limits, and a suggestion."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

SMALLEST = 64
MULTIPLE = 64  # suggested limits are multiples of this many tokens
ACCEPTED_LOSS = 0.01  # of the trained tokens
CURVE_POINTS = 64
QUANTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distinct lengths, ascending; of the k shortest of them the examples, tokens and trained
    tokens (one entry more than lengths, the first is 0)."""

    lengths: Sequence[int]
    examples: Sequence[int]
    tokens: Sequence[int]
    trained: Sequence[int]


def distribution(examples: Mapping[int, int], trained: Mapping[int, int]) -> Distribution:
    """The length distribution of all examples, kept or not, by how many examples there are of
    each length and how many trained tokens these hold."""
    lengths = sorted(examples)
    return Distribution(
        lengths=lengths,
        examples=list(accumulate((examples[size] for size in lengths), initial=0)),
        tokens=list(accumulate((size * examples[size] for size in lengths), initial=0)),
        trained=list(accumulate((trained[size] for size in lengths), initial=0)),
    )


def loss(found: Distribution, limit: int) -> dict[str, int]:
    """What is lost when every example of more than `limit` tokens is dropped whole."""
    kept = bisect_right(found.lengths, limit)
    return {
        "max_seq_len": limit,
        "examples_lost": found.examples[-1] - found.examples[kept],
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


def limits_report(found: Distribution) -> dict[str, Any]:
    """The table of candidate limits and the suggestion, for reports/tokenize.json."""
    return {
        "limits": [loss(found, limit) for limit in candidates(found)],
        "suggested_max_seq_len": suggestion(found),
    }


def curve(found: Distribution) -> str:
    """A TSV of the shares of examples and trained tokens that each limit keeps, at up to 64 evenly
    spaced limits: what `dvc plots` draws."""
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
