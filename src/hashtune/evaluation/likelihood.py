"""How likely does a model find the references? Perplexity, and bits per byte.

Perplexity is exp of the mean negative log-probability of a reference token, so it compares models
of one tokenizer alone; bits per byte divides the same sum by the UTF-8 bytes of the references and
compares any two. The end of the turn is not counted. Neither is a score of the gate: a model may
find a reference unlikely and still answer rightly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hashtune.evaluation.noise import chosen
from hashtune.evaluation.tasks import TaskItem
from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.evaluation.engines.base import Engine
    from hashtune.evaluation.generate import Progress
    from hashtune.evaluation.kept import Kept

LARGEST = 1e12  # perplexity
BATCH_SIZE = 8  # logits of every reference token are held: rows x tokens x vocabulary


@dataclass(frozen=True, slots=True)
class Reference:
    """A Question (see choices) with one choice: the reference."""

    messages: list[Message]
    choices: tuple[str, ...]


def reference_likelihood(
    engine: "Engine",
    items: Sequence[TaskItem],
    prompts: Sequence[Sequence[Message]],
    count: int,
    *,
    progress: "Progress",
    kept: "Kept | None" = None,
) -> dict[str, Any]:
    """Figures over `count` items spread evenly: items, tokens, bytes, perplexity, bits_per_byte
    (6 decimals; None of no items, perplexity also beyond 1e12)."""
    picked = [(items[at], prompts[at]) for at in chosen(items, count)] if count else []
    asked = [Reference(list(prompt), (item.reference,)) for item, prompt in picked]
    sums = engine.likelihoods(asked, batch_size=BATCH_SIZE, progress=progress, kept=kept)
    tokens = sum(
        len(engine.template.tokenizer.encode(of.choices[0], add_special_tokens=False))
        for of in asked
    )
    return figures(
        sum(value for (value,) in sums),
        items=len(asked),
        tokens=tokens,
        size=sum(len(of.choices[0].encode()) for of in asked),
    )


def figures(log_probability: float, *, items: int, tokens: int, size: int) -> dict[str, Any]:
    """As `reference_likelihood`, of a summed log-probability in nats over `size` bytes."""
    told: dict[str, Any] = {"items": items, "tokens": tokens, "bytes": size}
    if not tokens:
        return told | {"perplexity": None, "bits_per_byte": None}
    mean = -log_probability / tokens
    perplexity = round(math.exp(mean), 6) if mean < math.log(LARGEST) else None
    return told | {
        "perplexity": perplexity,
        "bits_per_byte": round(-log_probability / math.log(2) / size, 6),
    }
