"""Greedy answers under a frozen batch plan.

Batches depend on prompt lengths and batch_size alone (longest first), so base and adapter see the
same batches. The loop is our own because transformers' `generate` fills every setting left unset
from the model's own generation config (a repetition penalty, say) and computes finished rows to
the end; here a row leaves its batch when it is done. On the tiny test model the answers equal
`generate`'s token by token.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from hashtune.errors import Finding, InputError
from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.evaluation.kept import Kept

Item = TypeVar("Item")
Stop = int | tuple[int, ...]


class Progress(Protocol):
    """Yields the items and shows how far it is; frame.progress is one."""

    def __call__(self, items: Iterable[Item], *, total: int, label: str) -> Iterator[Item]:
        """The items in their order; `total` of them, told under `label`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A generated answer: its text without the stop, the number of new tokens with it, and
    whether a stop was reached (else it was cut at max_new_tokens)."""

    text: str
    tokens: int
    finished: bool


def generate_answers(
    model: Any,
    template: "Template",
    conversations: Sequence[Sequence[Message]],
    *,
    stop_ids: Sequence[Stop],
    max_new_tokens: int,
    batch_size: int,
    progress: Progress,
    kept: "Kept | None" = None,
) -> list[Answer]:
    """Answer each conversation greedily; results are in input order.

    Args:
        model: a causal language model in eval mode.
        template: renders a conversation to prompt ids and holds the tokenizer.
        conversations: messages up to the point where the assistant answers.
        stop_ids: what ends an answer: token ids, or tuples of ids for stops of several tokens.
        max_new_tokens: per answer, the stop included.
        batch_size: rows per batch.
        progress: shown per batch.
        kept: batches that an earlier, killed run answered; new ones are added.

    Raises:
        InputError: no stops, prompts with control tokens, or prompts that leave no room for
            max_new_tokens in the positions of the model.
    """
    prompts = rendered_prompts(template, conversations)
    stops = [(stop,) if isinstance(stop, int) else tuple(stop) for stop in stop_ids]
    _check(model, prompts, stops=stops, max_new_tokens=max_new_tokens)
    plan = batch_plan([len(prompt) for prompt in prompts], batch_size=batch_size)
    answers: dict[int, Answer] = {}
    for batch in progress(plan, total=len(plan), label="answers, in batches"):
        rows = [prompts[index] for index in batch]
        make = partial(_written, model, rows, stops=stops, max_new_tokens=max_new_tokens)
        what = {"answers": rows, "stops": stops, "max_new_tokens": max_new_tokens}
        written = make() if kept is None else kept.batch(what, make)
        for index, ids in zip(batch, written, strict=True):
            answers[index] = decoded(template.tokenizer, ids, stops)
    return [answers[index] for index in range(len(prompts))]


def rendered_prompts(
    template: "Template", conversations: Sequence[Sequence[Message]]
) -> list[list[int]]:
    """Ids of each prompt.

    Raises:
        InputError: every prompt that the template refuses, by its index.
    """
    prompts, found = [], []
    for index, messages in enumerate(conversations):
        try:
            prompts.append(list(template.prompt_ids(list(messages))))
        except InputError as error:
            found += [replace(f, message=f"prompt {index}: {f.message}") for f in error.findings]
    if found:
        raise InputError(found)
    return prompts


def batch_plan(lengths: Sequence[int], *, batch_size: int) -> list[list[int]]:
    """Indices of the prompts per batch: longest first, equal lengths in input order."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def _check(
    model: Any, prompts: Sequence[list[int]], *, stops: Sequence[Stop], max_new_tokens: int
) -> None:
    if not stops:
        message = "no stop is known: answers would never end"
        raise InputError(Finding("no-stop", message, field="tokenizer.stops"))
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return
    positions -= getattr(model, "virtual_tokens", 0)  # of a prompt or prefix
    findings = [
        Finding(
            "too-long",
            f"prompt {index} has {len(prompt)} tokens; with {max_new_tokens} new ones it exceeds"
            f" the {positions} positions of the model",
            fix="lower max_new_tokens or shorten the prompt",
        )
        for index, prompt in enumerate(prompts)
        if len(prompt) + max_new_tokens > positions
    ]
    if findings:
        raise InputError(findings)


def _written(
    model: Any, rows: Sequence[list[int]], *, stops: Sequence[tuple[int, ...]], max_new_tokens: int
) -> list[list[int]]:
    with torch.inference_mode():
        return _continue(model, rows, stops=stops, max_new_tokens=max_new_tokens)


def _continue(
    model: Any,
    prompts: Sequence[list[int]],
    *,
    stops: Sequence[tuple[int, ...]],
    max_new_tokens: int,
) -> list[list[int]]:
    """New ids of each prompt, stop included. Prompts are padded on the left, so that all rows
    write at the same column; padding is masked and positions start at each row's first token:

        ids        pad pad  a   b  | new ...      mask  0 0 1 1 | 1
        positions   0   0   0   1  |  2
    """
    device = next(model.parameters()).device
    width = max(map(len, prompts))
    pads = [width - len(prompt) for prompt in prompts]
    ids = [[0] * pad + prompt for pad, prompt in zip(pads, prompts, strict=True)]
    column = torch.tensor(ids, device=device)
    mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads], device=device)
    positions = torch.tensor([[max(0, at - pad) for at in range(width)] for pad in pads])
    positions = positions.to(device)
    written: list[list[int]] = [[] for _ in prompts]
    alive, cache = list(range(len(prompts))), None
    for _ in range(max_new_tokens):
        output = model(
            input_ids=column,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache, column = output.cache, output.logits[:, -1].argmax(-1, keepdim=True)
        for row, token in zip(alive, column[:, 0].tolist(), strict=True):
            if not _stopped(written[row], stops):
                written[row].append(token)
        going = [at for at, row in enumerate(alive) if not _stopped(written[row], stops)]
        if not going:
            break
        mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
        positions = positions[:, -1:] + 1
        if len(going) < len(alive) and can_select(cache):
            keep = torch.tensor(going, device=device)
            cache.batch_select_indices(keep)
            column, mask, positions = column[keep], mask[keep], positions[keep]
            alive = [alive[at] for at in going]
    return written


def can_select(cache: Any) -> bool:
    """Whether rows can be taken out of the cache: layers with recurrent states (linear attention)
    only know how to drop keys and values, so their batches run on whole."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)


def _stopped(ids: Sequence[int], stops: Sequence[tuple[int, ...]]) -> bool:
    return any(tuple(ids[-len(stop) :]) == stop for stop in stops)


def cut_at_stop(ids: list[int], stops: Sequence[tuple[int, ...]]) -> list[int]:
    """The ids up to the first stop, that included; all of them without one."""
    ends = (end for end in range(1, len(ids) + 1) if _stopped(ids[:end], stops))
    return ids[: next(ends, len(ids))]


def decoded(tokenizer: Any, ids: list[int], stops: Sequence[tuple[int, ...]]) -> Answer:
    """Decode without the stop; other special tokens stay visible, since the model wrote them."""
    ends = [len(stop) for stop in stops if tuple(ids[-len(stop) :]) == stop]
    body = ids[: len(ids) - max(ends)] if ends else ids
    text = tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return Answer(text=str(text), tokens=len(ids), finished=bool(ends))
