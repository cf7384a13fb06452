"""The probe: what it measures, and that it leaves no bit of the run changed."""

from hashtune.training.memory_probe import measure_steps


def test_try(make_loop, make_full):
    import time

    loop = make_loop("a", dropout=0.1)
    t = time.time()
    m = measure_steps(loop.trainee, loop.plan, loop.settings, steps=2)
    print(m, time.time() - t)
    loop = make_loop("b", trainee=make_full())
    m = measure_steps(loop.trainee, loop.plan, loop.settings, steps=2)
    print(m)
