"""What a model costs per token, counted from the model itself."""

from collections.abc import Callable

from hashtune.records import Row
from hashtune.training.model import Trainee
from hashtune.training.rates import Gauge, Meter, gauge_of, peak_memory_gb, rates
from hashtune.training.utilisation import Work


def test_the_gauge_counts_frozen_and_trained_parameters(
    make_trainee: Callable[..., Trainee],
) -> None:
    trainee = make_trainee()
    everything = sum(p.numel() for p in trainee.peft.parameters())
    gauge = gauge_of(trainee, peak_tflops=0.1)
    # r 2 on q (64 to 64) and v (64 to 32) of two layers
    trainable = 2 * (2 * (64 + 64) + 2 * (64 + 32))
    assert gauge.work.trainable == trainable
    assert gauge.work.frozen == everything - trainable
    assert (gauge.work.layers, gauge.work.width) == (2, 64)
    assert (gauge.work.again, gauge.work.layers_again, gauge.peak_tflops) == (0, 0, 0.1)


def test_blocks_that_are_computed_again_are_seen(make_trainee: Callable[..., Trainee]) -> None:
    trainee = make_trainee()
    model = trainee.peft.get_base_model()
    model.activation_checkpointing_enable(every_n_layers=2)  # the first of two blocks
    work = gauge_of(trainee, peak_tflops=None).work
    assert work.layers_again == 1
    assert work.again == sum(p.numel() for p in model.model.layers[0].parameters())


def test_a_meter_before_its_first_step_gives_zeros() -> None:
    found = rates(Meter(), Gauge(Work(1000, 10, layers=1, width=8), peak_tflops=0.1))
    assert (found["tokens_per_second"], found["tokens_per_step"], found["mfu"]) == (0.0, 0.0, None)


def test_steps_since_an_earlier_reading() -> None:
    meter = Meter(first_step=5)
    meter.add([Row(0, ["a"], [2])], trained_tokens=1, seconds=1.0)
    earlier = Meter(seconds=1.0, tokens=2, trained_tokens=1, squares=4, steps=1, first_step=5)
    assert meter == earlier
    meter.add([Row(1, ["b", "c"], [3, 1])], trained_tokens=2, seconds=4.0)
    since = meter.since(earlier)
    assert since == Meter(
        seconds=4.0, tokens=4, trained_tokens=2, squares=10, steps=1, first_step=6
    )
    assert since.context == 2.5


def test_this_process_holds_memory() -> None:
    assert 0.01 < peak_memory_gb() < 1000
