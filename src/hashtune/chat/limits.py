"""What a max_seq_len would cost: examples and tokens lost for some limits, and a suggestion."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hashtune.records import Example

SMALLEST = 64
MULTIPLE = 64  # suggested limits are multiples of this many tokens
ACCEPTED_LOSS = 0.01  # of the trained tokens
CURVE_POINTS = 64
QUANTILES = (50, 90, 99, 100)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Lengths in ascending order, and the tokens and trained tokens of the k shortest examples."""

    lengths: Sequence[int]
    tokens: Sequence[int]
    trained: Sequence[int]


def distribution(examples: Sequence[Example]) -> Distribution:
    """The length distribution of all examples, kept or not."""
    pairs = sorted((len(example.input_ids), example.trained_tokens) for example in examples)
    return Distribution(
        lengths=[length for length, _ in pairs],
        tokens=list(accumulate((length for length, _ in pairs), initial=0)),
        trained=list(accumulate((trained for _, trained in pairs), initial=0)),
    )


def loss(found: Distribution, limit: int) -> dict[str, int]:
    """What is lost when every example of more than `limit` tokens is dropped whole."""
    kept = bisect_right(found.lengths, limit)
    return {
        "max_seq_len": limit,
        "examples_lost": len(found.lengths) - kept,
        "tokens_lost": found.tokens[-1] - found.tokens[kept],
        "trained_tokens_lost": found.trained[-1] - found.trained[kept],
    }


def candidates(lengths: Sequence[int]) -> list[int]:
    """Powers of two from 64 to the first that loses nothing, and the nearest-rank percentiles 50,
    90, 99 and 100, ascending; `lengths` are ascending."""
    if not lengths:
        return []
    powers = [SMALLEST]
    while powers[-1] < lengths[-1]:
        powers.append(powers[-1] * 2)
    ranks = [lengths[-(-q * len(lengths) // 100) - 1] for q in QUANTILES]
    return sorted({*powers, *ranks})


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
        "limits": [loss(found, limit) for limit in candidates(found.lengths)],
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
            1 - lost["examples_lost"] / len(found.lengths),
            1 - lost["trained_tokens_lost"] / max(1, found.trained[-1]),
        )
        lines.append("\t".join([str(limit), *(f"{share:.6f}" for share in shares)]))
    return "\n".join(lines) + "\n"
