"""Signals in the curves, said in words while they can still be acted on; none stops a run.

Points come in, sentences come out: the signals are a function of the curves, so that a resumed run
says what a straight one says, and the report may list them. Each fires once. A number of steps is
at most half of the run, since a signal that needs 50 steps is never seen in a run of 20.

    near-uniform      the loss starts and stays near ln V, as if every token were equally likely
    low-start         the first loss is suspiciously low
    low-loss          the train loss is below 0.2
    eval-rising       the eval loss turns up, straight or in zigzags, while the train loss falls
    clipped           every gradient is clipped
    entropy-collapse  the model is far surer of its answers than they are right
    diverged          the loss is far above that of the start
    huge-weights      a trained value is larger than fp16 holds
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

from hashtune.training.diverged import far_above, oversized, sentence

WINDOW = 10  # steps a mean is taken over, as many as lie between two full lines of the journal
# ln V is the loss of a uniform guess. 5 % is ours: a pretrained base on labels that it was meant
# for starts at 1 to 3 nats, ln V is 10 and more.
NEAR_UNIFORM = 0.95
# Ours: tokens that the base already gives more than 60 % (exp -0.5) need no training.
LOW_START = 0.5
# Unsloth's guide to LoRA hyperparameters: below 0.2 a model is likely overfitting.
LOW_LOSS = 0.2
# Ours: one rise is noise between neighbouring evaluations.
RISES = 2
# "Every step" needs a number. Ours: longer than the usual warm-up, where gradients are large.
CLIPPED_STEPS = 50
# Ours: what two steps have in common is chance.
LEAST = 3
# Ours. A model as sure as it is right has a mean loss like its entropy, so that a low entropy
# alone is what training is for.
COLLAPSED, SURER = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class Signal:
    """What was seen, after which step, in a sentence."""

    name: str
    step: int
    text: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.text} [{self.name}]"


@dataclass(slots=True)
class Watcher:
    """Sees one point of the curves after the other.

    Attributes:
        vocab: rows of the head.
        grad_clip: optim.grad_clip.
        total: steps of the plan.
        fired: the signals so far.
        first: the first WINDOW train points; recent: the last CLIPPED_STEPS.
        evals: (step, eval loss, mean train loss before it) of every evaluation.
    """

    vocab: int
    grad_clip: float
    total: int = 2 * CLIPPED_STEPS
    fired: list[Signal] = field(default_factory=list)
    first: list[Mapping[str, Any]] = field(default_factory=list)
    recent: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=CLIPPED_STEPS))
    evals: list[tuple[int, float, float]] = field(default_factory=list)

    def see(self, point: Mapping[str, Any]) -> list[Signal]:
        """Take a point in and return the signals that it fires for the first time."""
        if "train/loss" in point:
            self.recent.append(point)
            if len(self.first) < WINDOW:
                self.first.append(point)
            rules = [*self._starts(), *self._uniform(), *self._means(), *self._clipped()]
        else:
            self.evals.append((point["step"], point["eval/loss"], self._recent("train/loss")))
            rules = [*self._rising(), *self._diverged("the eval loss", point["eval/loss"])]
        return self._fire(rules, point["step"])

    def look_back(self, loss: float | None, *, largest: float, step: int) -> list[Signal]:
        """Take in the loss of the first step's rows after the last one and the largest of the
        trained values, as `see` does a point."""
        rules = [*oversized(largest)]
        if loss is not None:
            rules += self._diverged("the loss of the first step's rows", loss)
        return self._fire(rules, step)

    def _fire(self, rules: Iterable[tuple[str, str]], step: int) -> list[Signal]:
        known = {signal.name for signal in self.fired}
        new = [Signal(name, step, text) for name, text in rules if name not in known]
        self.fired += new
        return new

    def _window(self, most: int) -> int:
        """So many steps, at most half of the run, at least LEAST: 10 and 50 of a run of 175 steps,
        10 and 15 of 30, 3 and 3 of 6."""
        return min(most, max(LEAST, self.total // 2))

    def _recent(self, name: str) -> float:
        return _mean(list(self.recent)[-self._window(WINDOW) :], name)

    def _starts(self) -> Iterator[tuple[str, str]]:
        loss = self.first[0]["train/loss"]
        if loss < LOW_START:
            yield (
                "low-start",
                f"the first loss is {loss:.2f}, suspiciously low: is the prompt or the template "
                "trained, or was the base trained on these data?",
            )

    def _uniform(self) -> Iterator[tuple[str, str]]:
        """Of a run shorter than the window all steps but skipped ones; one is far from chance."""
        steps = len(self.first)
        known = steps == WINDOW or self.first[-1]["step"] >= self.total
        mean, uniform = _mean(self.first, "train/loss"), math.log(self.vocab)
        if known and mean >= NEAR_UNIFORM * uniform:
            whose = f"the first {steps} steps" if steps > 1 else "the only step"
            yield (
                "near-uniform",
                f"the mean loss of {whose} is {mean:.2f}, near ln({self.vocab}) = {uniform:.2f}: "
                "every token is as likely as any other; labels, tokenizer or new embeddings are "
                "wrong",
            )

    def _means(self) -> Iterator[tuple[str, str]]:
        window = self._window(WINDOW)
        if len(self.recent) < window:
            return
        loss, entropy = self._recent("train/loss"), self._recent("train/entropy")
        start = _mean(self.first[:window], "train/entropy")
        if loss < LOW_LOSS:
            yield (
                "low-loss",
                f"the mean loss of the last {window} steps is {loss:.2f}, below {LOW_LOSS}: often "
                "overfitting; short answers of a fixed form get there too, the eval loss tells",
            )
        if entropy < COLLAPSED * start and loss > SURER * entropy:
            yield (
                "entropy-collapse",
                f"the entropy fell from {start:.2f} to {entropy:.2f} nats a token at a loss of "
                f"{loss:.2f}: the model is surer than it is right; a lower optim.lr or fewer "
                "epochs help",
            )

        yield from self._diverged(f"the mean loss of the last {window} steps", loss)

    def _diverged(self, what: str, loss: float) -> Iterator[tuple[str, str]]:
        start = self.first[0]["train/loss"] if self.first else math.inf  # all steps were skipped
        if far_above(start, loss):
            yield "diverged", sentence(what, start, loss)

    def _clipped(self) -> Iterator[tuple[str, str]]:
        window = self._window(CLIPPED_STEPS)
        norms = [point["train/grad_norm"] for point in self.recent][-window:]
        if len(norms) == window and min(norms) > self.grad_clip:
            yield (
                "clipped",
                f"the last {window} gradients were all clipped (norms {min(norms):.2f} to "
                f"{max(norms):.2f}, optim.grad_clip {self.grad_clip:g}): the learning rate that "
                "takes effect is lower than the one set",
            )

    def _rising(self) -> Iterator[tuple[str, str]]:
        for count, turned, words in TURNS:
            last = self.evals[-count:]
            losses = [loss for _, loss, _ in last]
            if len(last) == count and turned(losses) and last[-1][2] < last[0][2]:
                best = min(self.evals, key=lambda entry: entry[1])[0]
                yield (
                    "eval-rising",
                    f"the eval loss rose {words} ({', '.join(f'{x:.4f}' for x in losses)}) "
                    "while the train loss fell: overfitting; checkpoint.select=best takes the "
                    f"weights of step {best}",
                )
                return


def rose(losses: Sequence[float]) -> bool:
    """Each is above the one before it: 1.70, 1.72, 1.75."""
    return all(before < after for before, after in pairwise(losses))


def zigzag(losses: Sequence[float]) -> bool:
    """Each is above the last but one, so that the means of neighbours rise: 1.70, 1.80, 1.75, 1.85
    have the means 1.75, 1.775, 1.80."""
    return all(before < after for before, after in zip(losses, losses[2:], strict=False))


# evaluations, rule and words; a zigzag of RISES rises of the means has one evaluation more
TURNS: tuple[tuple[int, Callable[[Sequence[float]], bool], str], ...] = (
    (RISES + 1, rose, "twice in a row"),
    (RISES + 2, zigzag, "up and down, by the means of neighbours"),
)


def watch(
    points: Iterable[Mapping[str, Any]],
    *,
    vocab: int,
    grad_clip: float,
    total: int = 2 * CLIPPED_STEPS,
) -> list[Signal]:
    """The signals that these points of the curves of a run of `total` steps fire, in order."""
    watcher = Watcher(vocab, grad_clip, total)
    for point in points:
        watcher.see(point)
    return watcher.fired


def _mean(points: Sequence[Mapping[str, Any]], name: str) -> float:
    return fmean(point[name] for point in points) if points else 0.0
