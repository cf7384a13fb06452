"""Tasks of lm-evaluation-harness, answered by our models, scored by the harness, as rows of ours.

Optional: the package is imported when a task is asked for. It sees text only; logits and greedy
answers come from the code that answers the suites, so precision and batch plan are the same. Its
prompts are plain text, without the chat template, as published results of its tasks are.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hashtune.errors import Finding, InputError
from hashtune.evaluation.choices import log_probs
from hashtune.evaluation.generate import Progress, batch_plan, generate_answers
from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.evaluation.models import Subject

INSTALL = "pip install -e '.[lm-eval]'"
SUITE = "lm-eval"
MAX_NEW_TOKENS = 256  # where a task does not say


class PlainText:
    """Renders a message as its text alone, for prompts that are no conversation."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the one message's text."""
        return list(self.tokenizer.encode(messages[0]["content"], add_special_tokens=False))


def harness_rows(
    subject: "Subject",
    tasks: Sequence[str],
    *,
    batch_size: int,
    progress: Progress,
    limit: int | None = None,
    include: str | None = None,
) -> list[dict[str, Any]]:
    """One row per item of each task, as answering.answer_suites gives them; the slice is the task.

    Args:
        subject: the model.
        tasks: names of tasks, or of groups of tasks.
        batch_size: sequences per batch.
        progress: shown per batch.
        limit: the first so many items of each task; None for all.
        include: folder with tasks of one's own (YAML), or None.

    Raises:
        InputError: the package is not there, a task is unknown, or a score is no number in [0, 1].
    """
    lm_eval = package()
    manager = lm_eval.tasks.TaskManager(include_path=include)
    if unknown := [task for task in tasks if task not in manager.all_tasks]:
        fix = "lm-eval ls tasks"
        raise InputError([Finding("no-task", f"there is no task {t!r}", fix=fix) for t in unknown])
    found = lm_eval.simple_evaluate(
        model=_model(lm_eval, subject, batch_size=batch_size, progress=progress),
        tasks=list(tasks),
        limit=limit,
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=True,
    )
    return [
        _row(task, sample)
        for task in sorted(found["samples"])
        for sample in _of_first_filter(found["samples"][task])
    ]


def package() -> Any:
    """The harness, imported.

    Raises:
        InputError: it is not installed; names the command.
    """
    try:
        import lm_eval
        import lm_eval.api.model
        import lm_eval.tasks
    except ModuleNotFoundError as error:
        message = f"lm-evaluation-harness is not installed: there is no {error.name}"
        raise InputError(Finding("no-lm-eval", message, fix=INSTALL)) from error
    return lm_eval


def _of_first_filter(samples: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A task that reads answers in several ways (gsm8k: strict, flexible) has a sample of each item
    for each of them; the first way counts, so that an item is one row."""
    first = samples[0].get("filter") if samples else None
    return [sample for sample in samples if sample.get("filter") == first]


def _row(task: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    """The score is the first metric that the task declares."""
    metric = sample["metrics"][0]
    score = sample.get(metric)
    name = f"{task}/{sample['doc_id']}"
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        message = f"{name}: {metric} is {score!r}, no score in [0, 1] of one item"
        raise InputError(Finding("no-item-score", message, fix="a task whose items have scores"))
    return {
        "id": name,
        "suite": SUITE,
        "slice": task,
        "kind": metric,
        "output": json.dumps(sample["filtered_resps"], ensure_ascii=False),
        "score": float(score),
        "tokens": 0,
        "finished": True,
    }


def _model(lm_eval: Any, subject: "Subject", *, batch_size: int, progress: Progress) -> Any:
    """The subject behind the interface of the harness."""

    class Answering(lm_eval.api.model.LM):  # type: ignore[misc]  # lm-eval is untyped
        """Log-likelihoods and greedy continuations of plain text."""

        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            """(nats, whether greedy decoding writes it) of each continuation."""
            pairs = [_pair(subject, *request.args) for request in requests]
            return likelihoods(subject.model, pairs, batch_size=batch_size, progress=progress)

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            """Refused: perplexity of a text is no score in [0, 1]."""
            message = "the task measures the perplexity of whole texts, which is no score of items"
            raise InputError(Finding("no-item-score", message))

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            """Greedy continuations, cut before the first of the task's stop texts."""
            return [_continued(subject, *request.args, progress=progress) for request in requests]

    return Answering()


def _pair(subject: "Subject", context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Ids of context and continuation, tokenized as one text; blanks between them go to the
    continuation. An empty context is the token that ends texts."""
    tokenizer = subject.template.tokenizer
    bare = context.rstrip()
    continuation = context[len(bare) :] + continuation
    before = tokenizer.encode(bare, add_special_tokens=False)
    whole = tokenizer.encode(bare + continuation, add_special_tokens=False)
    if not before:
        return [tokenizer.eos_token_id], whole
    return before, whole[len(before) :]


def likelihoods(
    model: Any,
    pairs: Sequence[tuple[list[int], list[int]]],
    *,
    batch_size: int,
    progress: Progress,
) -> list[tuple[float, bool]]:
    """(summed log-probability in nats, whether every token is the likeliest) of the second part of
    each pair after the first, in input order."""
    plan = batch_plan([len(a) + len(b) for a, b in pairs], batch_size=batch_size)
    found: dict[int, tuple[float, bool]] = {}
    for batch in progress(plan, total=len(plan), label="log-likelihoods, in batches"):
        with torch.inference_mode():
            values, targets, wanted = log_probs(model, [pairs[index] for index in batch])
            of_token = values.gather(-1, targets[..., None])[..., 0]
            sums = of_token.masked_fill(~wanted, 0.0).double().sum(-1)
            greedy = ((values.argmax(-1) == targets) | ~wanted).all(-1)
        for index, value, likeliest in zip(batch, sums.tolist(), greedy.tolist(), strict=True):
            found[index] = (value, likeliest)
    return [found[index] for index in range(len(pairs))]


def _continued(
    subject: "Subject", context: str, settings: Mapping[str, Any], *, progress: Progress
) -> str:
    until = settings.get("until") or []
    ends = [until] if isinstance(until, str) else list(until)
    (answer,) = generate_answers(
        subject.model,
        # it asks a template for prompt_ids alone; Template is a class, in the code of stages
        PlainText(subject.template.tokenizer),  # type: ignore[arg-type]
        [[{"role": "user", "content": context}]],
        stop_ids=subject.stop_ids,
        max_new_tokens=int(settings.get("max_gen_toks") or MAX_NEW_TOKENS),
        batch_size=1,
        progress=progress,
    )
    places = [place for end in ends if (place := answer.text.find(end)) >= 0]
    return answer.text[: min(places)] if places else answer.text
