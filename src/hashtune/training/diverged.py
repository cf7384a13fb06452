"""Signs of a run that made the model worse: a loss far above the start's, values beyond fp16.

What a step did shows only in a loss measured after it: of the last steps for the train loss, of
each evaluation, and of a run without eval rows the loss of the first step's rows under the final
weights. A loss alone misses weights that only saturate a softmax or a norm.
"""

from collections.abc import Iterator

# Ours: half as much again and a whole nat (2.7 times less likely a token); rows and held-out rows
# of one task differ by less.
TIMES, NATS = 1.5, 1.0
LARGEST = 65_504.0  # of fp16, which an adapter may be served in; trained weights are below 100


def far_above(start: float, loss: float) -> bool:
    """Whether `loss` is at least TIMES and NATS above `start`, both means over tokens in nats."""
    return loss >= TIMES * start and loss >= start + NATS


def sentence(what: str, start: float, loss: float) -> str:
    """For a loss that is far above the start's."""
    return (
        f"{what} is {loss:.4g}, far above the {start:.4g} of the start: training made the model "
        "worse; a lower optim.lr or a longer warm-up help"
    )


def oversized(largest: float) -> Iterator[tuple[str, str]]:
    """The signal for a trained value that fp16 does not hold."""
    if largest > LARGEST:
        yield (
            "huge-weights",
            f"the largest trained value is {largest:.3g}, more than fp16 holds ({LARGEST:.0f}): "
            "the learning rate is far too high; lower optim.lr",
        )
