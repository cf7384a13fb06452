"""Signals: each has a planted curve that fires it and a healthy one that does not."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.training.watch import Signal, Watcher, watch

Point = dict[str, Any]


def train(
    losses: Sequence[float], *, entropy: Sequence[float] | None = None, norm: float = 0.5
) -> list[Point]:
    """Train points from step 1 on; entropies equal the losses unless given."""
    pairs = zip(losses, entropy or losses, strict=True)
    return [
        {"step": step, "train/loss": loss, "train/entropy": own, "train/grad_norm": norm}
        for step, (loss, own) in enumerate(pairs, start=1)
    ]


def evaluated(points: list[Point], losses: dict[int, float]) -> list[Point]:
    """With an evaluation after each of these steps."""
    mixed = [*points, *({"step": step, "eval/loss": loss} for step, loss in losses.items())]
    return sorted(mixed, key=lambda point: (point["step"], "eval/loss" in point))


def fired(points: list[Point], *, total: int = 100) -> list[Signal]:
    return watch(points, vocab=512, grad_clip=1.0, total=total)  # ln 512 = 6.238


FALLING = [2.0 - 0.01 * step for step in range(100)]  # 2.00, 1.99, ... 1.01


def test_a_healthy_run_fires_nothing() -> None:
    healthy = evaluated(train(FALLING), {20: 1.9, 40: 1.7, 60: 1.5, 80: 1.45, 100: 1.4})
    assert fired(healthy) == []


def test_a_loss_that_starts_and_stays_near_ln_v() -> None:
    (signal,) = fired(train([6.3] * 5 + [6.1] * 5))
    assert (signal.name, signal.step) == ("near-uniform", 10)
    assert signal.text == (
        "the mean loss of the first 10 steps is 6.20, near ln(512) = 6.24: every token is as "
        "likely as any other; labels, tokenizer or new embeddings are wrong"
    )
    assert fired(train([6.3] + [3.0] * 20)) == []  # it starts there and leaves
    assert fired(train([6.3] * 9)) == []  # not known yet


def test_a_loss_that_is_low_from_the_first_step() -> None:
    (signal,) = fired(train([0.4] * 3))
    assert (signal.name, signal.step) == ("low-start", 1)
    assert signal.text == (
        "the first loss is 0.40, suspiciously low: is the prompt or the template trained, or was "
        "the base trained on these data?"
    )
    assert fired(train([0.5] + [0.4] * 3)) == []


def test_a_loss_below_0_2() -> None:
    (signal,) = fired(train([1.0] * 10 + [0.19] * 10))
    assert (signal.name, signal.step) == ("low-loss", 20)
    assert signal.text == (
        "the mean loss of the last 10 steps is 0.19, below 0.2: often overfitting; short answers "
        "of a fixed form get there too, the eval loss tells"
    )
    assert fired(train([1.0] * 10 + [0.21] * 30)) == []
    assert fired(train([1.0] * 10 + [0.05] * 5)) == []  # a few easy steps are no trend


def test_an_eval_loss_that_turns_up_while_the_train_loss_falls() -> None:
    (signal,) = fired(evaluated(train(FALLING), {20: 1.9, 40: 1.7, 60: 1.72, 80: 1.75}))
    assert (signal.name, signal.step) == ("eval-rising", 80)
    assert signal.text == (
        "the eval loss rose twice in a row (1.7000, 1.7200, 1.7500) while the train loss fell: "
        "overfitting; checkpoint.select=best takes the weights of step 40"
    )


def test_an_eval_loss_that_rises_once_or_with_the_train_loss_is_no_overfitting() -> None:
    assert fired(evaluated(train(FALLING), {20: 1.9, 40: 1.95, 60: 1.7, 80: 1.75})) == []
    rising = [1.0 + 0.01 * step for step in range(100)]
    assert fired(evaluated(train(rising), {20: 1.0, 40: 1.1, 60: 1.2})) == []


ZIGZAG = {20: 1.9, 40: 1.7, 60: 1.8, 80: 1.75, 100: 1.85}


def test_an_eval_loss_that_zigzags_upward() -> None:
    """It never rises twice in a row; the means of neighbours are 1.75, 1.775 and 1.80."""
    (signal,) = fired(evaluated(train(FALLING), ZIGZAG))
    assert (signal.name, signal.step) == ("eval-rising", 100)
    assert signal.text == (
        "the eval loss rose up and down, by the means of neighbours (1.7000, 1.8000, 1.7500, "
        "1.8500) while the train loss fell: overfitting; checkpoint.select=best takes the weights "
        "of step 40"
    )
    assert fired(evaluated(train(FALLING), dict(list(ZIGZAG.items())[:4]))) == []  # not known yet


@pytest.mark.parametrize(
    "losses",
    [
        [1.9, 1.7, 1.8, 1.6, 1.7],  # downward
        [1.7, 1.8, 1.7, 1.8, 1.7],  # on the spot
        [1.0, 1.3, 1.2, 1.1, 1.05],  # a spike that heals
    ],
)
def test_zigzags_that_are_no_overfitting(losses: list[float]) -> None:
    assert (
        fired(evaluated(train(FALLING), dict(zip(range(20, 101, 20), losses, strict=True)))) == []
    )


def test_a_zigzag_with_three_teeth_and_one_over_a_rising_train_loss() -> None:
    teeth = dict(zip(range(10, 81, 10), [1.7, 1.9, 1.8, 1.72, 1.92, 1.82, 1.74, 1.94], strict=True))
    (signal,) = fired(evaluated(train(FALLING), teeth))
    assert (signal.name, signal.step) == ("eval-rising", 60)  # 1.80, 1.72, 1.92, 1.82
    rising = train([1.0 + 0.01 * step for step in range(100)])
    assert fired(evaluated(rising, ZIGZAG)) == []


@pytest.mark.parametrize(
    ("total", "uniform", "clipped", "low"),
    [  # steps after which the signals fire: a window is half of the run, 3 at least
        (1, 1, None, None),
        (2, 2, None, None),
        (3, 3, 3, 3),
        (6, 6, 3, 3),
        (20, 10, 10, 10),
        (30, 10, 15, 10),
        (100, 10, 50, 10),
        (175, 10, 50, 10),
    ],
)
def test_short_runs_see_their_signals(
    total: int, uniform: int, clipped: int | None, low: int | None
) -> None:
    def steps(name: str, points: list[Point]) -> int | None:
        return next((s.step for s in fired(points, total=total) if s.name == name), None)

    assert steps("near-uniform", train([6.2] * total)) == uniform
    assert steps("clipped", train([2.0] * total, norm=5.0)) == clipped
    assert steps("low-loss", train([0.1] * total)) == low
    healthy = train([2.0] * total)
    healthy[-1]["train/grad_norm"] = 5.0  # one of them
    assert fired(healthy, total=total) == []


def test_the_words_of_a_short_run() -> None:
    (one,) = fired(train([6.2]), total=1)
    assert one.text.startswith("the mean loss of the only step is 6.20, near ln(512) = 6.24")
    first, second = fired(train([0.1] * 6, norm=5.0), total=6)[1:]
    assert first.text.startswith("the mean loss of the last 3 steps is 0.10, below 0.2")
    assert second.text.startswith("the last 3 gradients were all clipped (norms 5.00 to 5.00")
    names = [s.name for s in fired(train([2.0] * 6, entropy=[2.0] * 3 + [0.1] * 3), total=6)]
    assert names == ["entropy-collapse"]


def test_a_skipped_step_of_a_short_run_hides_nothing() -> None:
    points = train([6.2] * 6)
    del points[3]
    (signal,) = fired(points, total=6)
    assert (signal.name, signal.step) == ("near-uniform", 6)
    assert "of the first 5 steps" in signal.text


def test_every_step_clipped() -> None:
    (signal,) = fired(train(FALLING[:50], norm=5.0))
    assert (signal.name, signal.step) == ("clipped", 50)
    assert signal.text == (
        "the last 50 gradients were all clipped (norms 5.00 to 5.00, optim.grad_clip 1): the "
        "learning rate that takes effect is lower than the one set"
    )
    assert fired(train(FALLING[:49], norm=5.0)) == []
    some = train(FALLING, norm=5.0)
    for point in some[::20]:
        point["train/grad_norm"] = 1.0  # at the limit is not above it
    assert fired(some) == []


def test_entropy_that_collapses_while_the_loss_does_not() -> None:
    (signal,) = fired(train([2.0] * 10 + [0.6] * 10, entropy=[2.0] * 10 + [0.1] * 10))
    # nine steps at 0.1 and one at 2.0 are 0.29 on average; ten at 0.1 are below a tenth of 2.0
    assert (signal.name, signal.step) == ("entropy-collapse", 20)
    assert signal.text.startswith(
        "the entropy fell from 2.00 to 0.10 nats a token at a loss of 0.60: the model is surer"
    )


@pytest.mark.parametrize(
    "entropy",
    [
        [2.0] * 10 + [0.5] * 10,  # a quarter of the start
        [0.1] * 20,  # as it was from the start
    ],
)
def test_entropy_that_does_not_collapse(entropy: list[float]) -> None:
    assert fired(train([2.0] * 10 + [0.6] * 10, entropy=entropy)) == []


def test_sure_and_right_is_no_collapse() -> None:
    names = [s.name for s in fired(train([2.0] * 10 + [0.1] * 10))]  # entropy falls as the loss
    assert names == ["low-loss"]


def test_a_signal_fires_once() -> None:
    watcher = Watcher(vocab=512, grad_clip=1.0)
    news = [watcher.see(point) for point in train([1.0] * 10 + [0.1] * 50)]
    assert [len(new) for new in news].count(1) == 1
    assert [signal.name for signal in watcher.fired] == ["low-loss"]


@given(
    losses=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60),
    cut=st.integers(0, 60),
    norm=st.floats(0.0, 9.0),
    total=st.sampled_from([1, 6, 20, 60, 500]),
)
def test_property_a_resumed_watch_says_what_a_straight_one_says(
    losses: list[float], cut: int, norm: float, total: int
) -> None:
    points = evaluated(train(losses, norm=norm), dict(enumerate(losses[::5], start=1)))
    resumed = Watcher(vocab=512, grad_clip=1.0, total=total)
    straight = fired(points, total=total)
    for point in points[:cut]:  # replayed from a checkpoint
        resumed.see(point)
    news = [signal for point in points[cut:] for signal in resumed.see(point)]
    assert resumed.fired == straight
    before = fired(points[:cut], total=total)
    assert news == [signal for signal in straight if signal not in before]


def test_a_train_loss_far_above_the_start() -> None:
    """2.0 at the start: 1.5 times is 3.0, one nat more is 3.0 too. The mean of ten steps counts."""
    (signal,) = fired(train([2.0] * 10 + [3.5] * 10))
    assert (signal.name, signal.step) == ("diverged", 17)  # (3 * 2.0 + 7 * 3.5) / 10 = 3.05
    assert signal.text == (
        "the mean loss of the last 10 steps is 3.05, far above the 2 of the start: training made "
        "the model worse; a lower optim.lr or a longer warm-up help"
    )
    assert fired(train([2.0] * 10 + [2.9] * 20)) == []
    assert fired(train([2.0] * 10 + [9.0] + [2.0] * 10)) == []  # one step is no trend


def test_an_eval_loss_far_above_the_start() -> None:
    (signal,) = fired(evaluated(train([2.0] * 3), {1: 2.5, 2: 3.0, 3: 1e29}), total=3)
    assert (signal.name, signal.step) == ("diverged", 2)
    assert signal.text.startswith("the eval loss is 3, far above the 2 of the start")
    assert fired(evaluated(train([2.0] * 3), {2: 2.99}), total=3) == []


def test_half_as_much_again_of_a_small_loss_is_not_far() -> None:
    assert fired(evaluated(train([0.6] * 3), {2: 1.5}), total=3) == []
    assert [s.name for s in fired(evaluated(train([0.6] * 3), {2: 1.7}), total=3)] == ["diverged"]


def test_a_look_back_says_the_same_once_and_of_no_step_nothing() -> None:
    watcher = Watcher(512, 1.0)
    assert watcher.look_back(99.0, largest=1.0, step=1) == []  # every step was skipped
    watcher.see(train([2.0])[0])
    assert watcher.look_back(2.9, largest=65_504.0, step=1) == []
    (signal,) = watcher.look_back(3.0, largest=1.0, step=1)
    assert str(signal).startswith("step 1: the loss of the first step's rows is 3, far above the 2")
    assert watcher.look_back(9.0, largest=1.0, step=1) == []
    (huge,) = watcher.look_back(None, largest=1e28, step=1)
    assert str(huge) == (
        "step 1: the largest trained value is 1e+28, more than fp16 holds (65504): the learning "
        "rate is far too high; lower optim.lr [huge-weights]"
    )
