"""What the model answers to a few eval prompts at each evaluation, beside what the data hold.

A loss does not show an answer that never ends or lost its form; reading two of them does. Answers
are greedy, one prompt at a time, without dropout: no random number is drawn and weights, gradients
and modes stay as they are, so that the adapter has the same bits with samples and without. An
answer takes about as long as a forward over its prompt and one per new token, at most MOST.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hashtune.records import IGNORE_INDEX, Row
from hashtune.training.model import Trainee
from hashtune.training.proof import evaluating

MOST = 64  # new tokens of an answer


@dataclass(frozen=True, slots=True)
class Prompt:
    """The start of an eval example up to its first trained token, and the trained run after it."""

    example: str
    prompt: list[int]
    reference: list[int]


def choose_prompts(rows: Sequence[Row], count: int) -> list[Prompt]:
    """The first document of `count` eval rows, lowest ids first: content hashes, so a fixed and
    fair choice. A row whose first token is trained has no prompt and is passed over."""
    found: list[Prompt] = []
    for row in sorted(rows, key=lambda row: row.example_ids[0]):
        ids, labels = row.input_ids[: row.lengths[0]], row.labels[: row.lengths[0]]
        trained = [label != IGNORE_INDEX for label in labels]
        start = trained.index(True) if True in trained else 0
        if start and len(found) < count:
            end = trained.index(False, start) if False in trained[start:] else len(trained)
            found.append(Prompt(row.example_ids[0], ids[:start], ids[start:end]))
    return found


@dataclass(frozen=True, slots=True)
class Sampler:
    """The prompts, how ids become text, and the special ids: where one of them ends a reference,
    writing it ends the answer."""

    prompts: Sequence[Prompt] = ()
    decode: Callable[[list[int]], str] = str
    special: Collection[int] = field(default_factory=frozenset)

    def take(self, trainee: Trainee, *, step: int) -> list[dict[str, Any]]:
        """A record per prompt, as it is written to samples.jsonl. An answer is as long as its
        reference at most; `finished` says whether it ended with the reference's stop."""
        with torch.no_grad(), evaluating(trainee), trainee.autocast():
            answers = [self._answer(trainee, prompt) for prompt in self.prompts]
        return [
            {
                "step": step,
                "example": prompt.example,
                "answer": self.decode(ids),
                "reference": self.decode(prompt.reference),
                "tokens": len(ids),
                "finished": ids[-1] == self._stop(prompt),
            }
            for prompt, ids in zip(self.prompts, answers, strict=True)
        ]

    def _answer(self, trainee: Trainee, prompt: Prompt) -> list[int]:
        most, stop = min(MOST, len(prompt.reference)), self._stop(prompt)
        return greedy(trainee, prompt.prompt, most=most, stop=stop)

    def _stop(self, prompt: Prompt) -> int | None:
        last = prompt.reference[-1]
        return last if last in self.special else None


def greedy(trainee: Trainee, prompt: Sequence[int], *, most: int, stop: int | None) -> list[int]:
    """At most `most` new ids, each the most likely one, up to and with `stop`."""
    model = trainee.peft.get_base_model()
    column, cache = torch.tensor([list(prompt)], device=trainee.device), None
    written: list[int] = []
    while len(written) < most and (not written or written[-1] != stop):
        output = model(input_ids=column, cache=cache, use_cache=True, logits_to_keep=1)
        cache, column = output.cache, output.logits[:, -1].argmax(-1, keepdim=True)
        written.append(int(column))
    return written
