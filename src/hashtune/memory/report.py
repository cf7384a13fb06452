"""The plan in words and figures: reports/plan.json, the refusal."""

from collections.abc import Sequence
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.memory.activations import offloaded_bytes
from hashtune.memory.cards import Card, cheapest
from hashtune.memory.chart import chart
from hashtune.memory.closed_form import Workload, full_logits_bytes, host_bytes, static_bytes
from hashtune.memory.cost import Duration
from hashtune.memory.decisions import GB, Change, Decision
from hashtune.memory.shapes import adapted_modules, match_targets


def refuse(decision: Decision, *, hardware: str, where: str = "") -> None:
    """Raise InputError when the estimate does not fit: the largest bucket, needed and available
    GB, the change to make first, and every other one with its saving. `where` names the row that
    decides."""
    if decision.fits:
        return
    largest = decision.buckets[decision.dominant]
    message = (
        f"a training step needs {decision.needed / GB:.2f} GB and {hardware} has "
        f"{decision.available / GB:.2f} GB; the largest part is {decision.dominant} with "
        f"{largest / GB:.2f} GB{where}"
    )
    raise InputError(
        Finding("does-not-fit", message, field="hardware.memory_gb", fix=changes_first(decision))
    )


def changes_first(decision: Decision) -> str:
    """What to change, the first change first."""
    changes = [told(change) for change in decision.changes]
    words = [f"first {changes[0]}", *changes[1:]] if changes else []
    if any(change.enough for change in decision.changes):
        return "; ".join(words)
    if decision.path:
        return "; ".join([f"enough together: {' '.join(decision.path)}", *words])
    together = f"all of these together need {decision.together / GB:.2f} GB"
    last = "" if decision.together <= decision.available else ", still too much: a smaller base"
    return "; ".join([*words, together + last])


def told(change: Change) -> str:
    """A change in a few words: saving, time, data."""
    words = [f"{change.setting} saves {change.saves / GB:.2f} GB"]
    words.append(pace(change.slowdown.factor))
    if change.lost is not None:
        words.append(loss(change.lost.examples, change.lost.of, change.lost.tokens))
    return f"{', '.join(words)}{' (enough)' if change.enough else ''}"


def pace(factor: float | None) -> str:
    """How long a token takes, in words."""
    return "time unknown" if factor is None else f"{factor:.2f} times as long"


def loss(examples: int, of: int, tokens: float) -> str:
    """The data that a change leaves out, in words."""
    return f"loses {examples} of {of} examples, {tokens:.2%} of tokens"


def describe(
    work: Workload,
    decision: Decision,
    time: Duration,
    cards: Sequence[Card],
    *,
    currency: str,
) -> dict[str, Any]:
    """The content of reports/plan.json; GB are 1e9 bytes, everything follows from the inputs."""
    shape = work.shape
    logits = full_logits_bytes(tokens=work.tokens, vocab=shape.vocab)
    best = cheapest(cards)
    return {
        "fits": decision.fits,
        "buckets_bytes": decision.buckets,
        "static_bytes": static_bytes(work),  # gradients too, which may not be there at the peak
        "chart": chart(decision.buckets, available=decision.available),
        "dominant": decision.dominant,
        "needed_gb": gigabytes(decision.needed),
        "allocated_gb": gigabytes(decision.needed - decision.buckets["overhead"]),
        "available_gb": gigabytes(decision.available),
        "longest_row_that_fits": decision.longest_row,
        "largest_micro_that_fits": decision.largest_micro,
        "changes": [_change(change) for change in decision.changes],
        "enough_together": decision.path,
        "cards": [_card(card) for card in cards],
        "cheapest_card": best.name if best else None,
        "unchunked_logits_gb": {name: gigabytes(count) for name, count in logits.items()},
        "model": {
            "parameters": shape.parameters,
            "trainable": work.adapter_parameters,
            "trainable_share": rounded(work.adapter_parameters / shape.parameters),
            "adapted_modules": adapted_modules(shape, work.targets),
            "targets": match_targets(shape, work.targets).counts,
        },
        "micro_batch": {
            "rows": work.micro,
            "longest_row": work.longest_row,
            "most_trained_in_a_row": work.trained,
            "document_mask": work.masked,
        },
        "tokens": time.tokens,
        "flops": rounded(time.flops),
        "tokens_per_second": rounded(time.tokens_per_second),
        "hours": rounded(time.hours),
        "cost": rounded(time.cost),
        "currency": currency,
    } | _host(work)


def _host(work: Workload) -> dict[str, Any]:
    """What can lie in host memory beside the process itself; nothing where nothing does."""
    parts = {"optimizer": host_bytes(work), "activations": offloaded_bytes(work)}
    found = {name: size for name, size in parts.items() if size}
    return {"host_bytes": found} if found else {}


def _change(change: Change) -> dict[str, Any]:
    factor, lost = change.slowdown.factor, change.lost
    found: dict[str, Any] = {
        "setting": change.setting,
        "saves_gb": gigabytes(change.saves),
        "enough": change.enough,
        "kind": change.kind,
        "times_as_long": None if factor is None else rounded(factor),
        "times_from": change.slowdown.source,
    }
    if lost is not None:
        found |= {
            "lost_examples": lost.examples,
            "of_examples": lost.of,
            "lost_tokens": rounded(lost.tokens),
        }
    return found


def _card(card: Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "precision": card.precision,
        "fits": card.fits,
        "needed_gb": gigabytes(card.needed),
        "available_gb": gigabytes(card.available),
        "longest_row": card.longest_row,
        "largest_micro": card.largest_micro,
        "enough_together": card.path,
        "hours": rounded(card.time.hours),
        "cost": rounded(card.time.cost),
        "price_per_hour": card.price_per_hour,
    }


def gigabytes(count: float) -> float:
    """Bytes in GB (1e9), to the megabyte."""
    return round(count / GB, 3)


def rounded(value: float) -> float:
    """Six significant digits, so that a report holds no rounding noise."""
    return float(f"{value:.6g}")
