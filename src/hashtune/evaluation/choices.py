"""Multiple choice by likelihood: which choice does the model find most likely as its answer?

The score of a choice is the sum of the log-probabilities of its tokens after the rendered prompt,
so nothing has to be parsed out of an answer. Per batch only the logits of choice positions are
made, and only their sums are kept: memory does not grow with the number of items.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hashtune.evaluation.generate import Progress, batch_plan, can_select
from hashtune.evaluation.suites import SuiteItem
from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.evaluation.kept import Kept


Asked = tuple[list[int], list[list[int]]]  # ids of a prompt and of its choices


class Question(Protocol):
    """What is asked, and the texts whose likelihood as its answer is wanted; a SuiteItem is one."""

    @property
    def messages(self) -> list[Message]:
        """What the model is given."""

    @property
    def choices(self) -> tuple[str, ...]:
        """At least one text."""


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
    items: Sequence[Question],
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
        batch_size: choices per batch, those of one item together.
        progress: shown per batch.
        kept: batches that an earlier, killed run scored; new ones are added.
    """
    asked = [choice_ids(template, item) for item in items]
    longest = [len(prompt) + max(map(len, choices)) for prompt, choices in asked]
    most = max((len(choices) for _, choices in asked), default=1)
    plan = batch_plan(longest, batch_size=max(1, batch_size // most))
    found: dict[int, list[float]] = {}
    for batch in progress(plan, total=len(plan), label="choices, in batches"):
        rows = [asked[index] for index in batch]
        make = partial(_exact_sums, model, rows)
        values = make() if kept is None else kept.batch({"choices": rows}, make)
        for index, value in zip(batch, values, strict=True):
            found[index] = [float.fromhex(text) for text in value]
    return [found[index] for index in range(len(items))]


def choice_ids(template: "Template", item: Question) -> Asked:
    """Ids of the rendered prompt, and of each choice."""
    encode = template.tokenizer.encode
    prompt = list(template.prompt_ids(item.messages))
    return prompt, [list(encode(choice, add_special_tokens=False)) for choice in item.choices]


def _exact_sums(model: Any, asked: Sequence[Asked]) -> list[list[str]]:
    """The sums of a batch as text that gives every bit back, NaN and infinity included."""
    with torch.inference_mode():
        flat = iter(value.hex() for value in _shared_sums(model, asked))
        return [[next(flat) for _ in choices] for _, choices in asked]


def _shared_sums(model: Any, asked: Sequence[Asked]) -> list[float]:
    """The sums of all choices, item by item; each prompt is read once for all of its choices.

    Prompts are padded on the left, then the cache is repeated and choices follow, padded on the
    right: the last prompt token predicts the first token of a choice, that the second.

        pad p p p | c c pad
    """
    device = next(model.parameters()).device
    prompts = [prompt for prompt, _ in asked]
    width = max(map(len, prompts))
    pads = [width - len(prompt) for prompt in prompts]
    mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads], device=device)
    places = torch.tensor([[max(0, at - pad) for at in range(width)] for pad in pads])
    ids = [[0] * pad + prompt for pad, prompt in zip(pads, prompts, strict=True)]
    output = model(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=mask,
        position_ids=places.to(device),
        use_cache=True,
        logits_to_keep=1,
    )
    if not can_select(output.cache):
        return _sums(model, [(prompt, ids) for prompt, choices in asked for ids in choices])
    owner = [number for number, (_, choices) in enumerate(asked) for _ in choices]
    choices = [ids for _, of_item in asked for ids in of_item]
    after = max(map(len, choices))
    tokens = torch.tensor([ids + [0] * (after - len(ids)) for ids in choices], device=device)
    wanted = torch.tensor([[at < len(ids) for at in range(after)] for ids in choices])
    wanted = wanted.to(device)
    of_owner = torch.tensor(owner, device=device)
    logits = output.logits[:, -1:].float().log_softmax(-1)[of_owner]
    found = logits.gather(-1, tokens[:, :1, None])[..., 0]
    if after > 1:
        output.cache.batch_select_indices(of_owner)
        starts = torch.tensor([[len(prompts[number])] for number in owner])
        rest = model(
            input_ids=tokens[:, :-1],
            attention_mask=torch.cat([mask[of_owner], wanted[:, :-1].to(mask.dtype)], dim=1),
            position_ids=(starts + torch.arange(after - 1)).to(device),
            cache=output.cache,
            use_cache=True,
            logits_to_keep=after - 1,
        ).logits
        of_token = rest.float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        found = torch.cat([found, of_token], dim=1)
    return [float(value) for value in found.masked_fill(~wanted, 0.0).double().sum(-1)]


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
