"""Multiple choice by likelihood: which choice does the model find most likely as its answer?

The score of a choice is the sum of the log-probabilities of its tokens after the rendered prompt,
so nothing has to be parsed out of an answer. Per batch only the logits of choice positions are
made, and only their sums are kept: memory does not grow with the number of items.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hashtune.evaluation.generate import Progress, batch_plan
from hashtune.evaluation.suites import SuiteItem

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.evaluation.kept import Kept


def choose(
    model: Any,
    template: "Template",
    items: Sequence[SuiteItem],
    *,
    batch_size: int,
    progress: Progress,
) -> list[int]:
    """Index of the most likely choice of each item; the lowest index on a tie."""
    scored = choice_scores(model, template, items, batch_size=batch_size, progress=progress)
    return [best(scores) for scores in scored]


def best(scores: Sequence[float]) -> int:
    """Index of the highest score, the lowest index on a tie."""
    return scores.index(max(scores))


def choice_scores(
    model: Any,
    template: "Template",
    items: Sequence[SuiteItem],
    *,
    batch_size: int,
    progress: Progress,
    kept: "Kept | None" = None,
) -> list[list[float]]:
    """Summed log-probability (nats) of each choice of each item, in input order.

    Args:
        model: a causal language model in eval mode.
        template: renders the question (as the user message) to prompt ids, holds the tokenizer.
        items: multiple choice items.
        batch_size: sequences (a prompt with one choice) per batch.
        progress: shown per batch.
        kept: batches that an earlier, killed run scored; new ones are added.
    """
    pairs: list[tuple[list[int], list[int]]] = []
    for item in items:
        prompt = list(template.prompt_ids(item.messages))
        for choice in item.choices:
            ids = template.tokenizer.encode(choice, add_special_tokens=False)
            pairs.append((prompt, list(ids)))
    plan = batch_plan([len(prompt) + len(ids) for prompt, ids in pairs], batch_size=batch_size)
    sums = [0.0] * len(pairs)
    for batch in progress(plan, total=len(plan), label="choices, in batches"):
        rows = [pairs[index] for index in batch]
        make = partial(_exact_sums, model, rows)
        values = make() if kept is None else kept.batch({"choices": rows}, make)
        for index, value in zip(batch, values, strict=True):
            sums[index] = float.fromhex(value)
    flat = iter(sums)
    return [[next(flat) for _ in item.choices] for item in items]


def _exact_sums(model: Any, pairs: Sequence[tuple[list[int], list[int]]]) -> list[str]:
    """The sums of a batch as text that gives every bit back, NaN and infinity included."""
    with torch.inference_mode():
        return [value.hex() for value in _sums(model, pairs)]


def _sums(model: Any, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
    """Summed log-probability (nats) of the second part of each pair after the first."""
    found, targets, wanted = log_probs(model, pairs)
    of_token = found.gather(-1, targets[..., None])[..., 0]
    sums = of_token.masked_fill(~wanted, 0.0).double().sum(-1)
    return [float(value) for value in sums]


def log_probs(
    model: Any, pairs: Sequence[tuple[list[int], list[int]]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One batch, padded on the right: (log-probabilities fp32 (rows, columns, vocabulary), target
    ids (rows, columns), which of them belong to the second part of their pair).

    The token at position t is predicted by the logits at t-1; logits are made from the last token
    of the shortest first part on:

        ids   p p p c c      first = 2: logits at 2, 3 predict the tokens at 3, 4
    """
    device = next(model.parameters()).device
    first = min(len(prompt) for prompt, _ in pairs) - 1
    width = max(len(prompt) + len(ids) for prompt, ids in pairs)
    rows, masks, wanted = [], [], []
    for prompt, ids in pairs:
        length = len(prompt) + len(ids)
        rows.append(prompt + ids + [0] * (width - length))
        masks.append([1] * length + [0] * (width - length))
        wanted.append([len(prompt) <= at < length for at in range(first + 1, width)])
    tokens = torch.tensor(rows, device=device)
    logits = model(
        input_ids=tokens,
        attention_mask=torch.tensor(masks, device=device),
        use_cache=False,
        logits_to_keep=torch.arange(first, width - 1, device=device),
    ).logits
    mask = torch.tensor(wanted, device=device)
    return logits.float().log_softmax(-1), tokens[:, first + 1 :], mask
