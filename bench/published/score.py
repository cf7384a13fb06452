"""How far predictions lie from measurements: signed errors, their median and 90th percentile."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the absolute errors of `count` points: median and 90th percentile, between neighbours by
    linear interpolation (as numpy.percentile), and the largest."""

    count: int
    median: float
    p90: float
    largest: float


def signed_error(predicted: float, measured: float) -> float:
    """-0.1: ten per cent below what was measured."""
    return predicted / measured - 1


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie; raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def summary(errors: Sequence[float]) -> Summary:
    """Of signed errors."""
    sizes = [abs(error) for error in errors]
    return Summary(len(sizes), percentile(sizes, 0.5), percentile(sizes, 0.9), max(sizes))


def violations(found: Summary, *, median: float, p90: float) -> list[str]:
    """Limits that are not kept, in words."""
    limits = [("median", found.median, median), ("90th percentile", found.p90, p90)]
    return [
        f"{name} of the absolute errors is {value:.1%}, at most {limit:.0%} is allowed"
        for name, value, limit in limits
        if value > limit
    ]
