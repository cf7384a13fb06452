"""NEFTune noise: its size by the paper's formula, its seeds, and where it is added."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hashtune.records import Row
from hashtune.training.batches import collate
from hashtune.training.model import Trainee
from hashtune.training.noise import Noise, on_embeddings, step_noise
from hashtune.training.plan import Plan
from hashtune.training.step import evaluate_loss, train_step

NOISE = Noise(5.0, seed=7, step=3)
MakeTrainee = Callable[..., Trainee]
MakeRow = Callable[[int, list[int]], Row]


def test_size_of_each_document(make_row: MakeRow) -> None:
    noise = NOISE.of(make_row(0, [4, 100]), 16)
    # 5 / sqrt(4 * 16) = 0.625 and 5 / sqrt(100 * 16) = 0.125
    for part, bound in ((noise[:4], 0.625), (noise[4:], 0.125)):
        assert bound * 0.9 < float(part.abs().max()) <= bound
        assert abs(float(part.mean())) < bound / 4
    # uniform in [-bound, bound]: variance bound ** 2 / 3
    assert float(noise[4:].var()) == pytest.approx(0.125**2 / 3, rel=0.1)


def test_a_function_of_seed_step_and_row_alone(make_row: MakeRow) -> None:
    row = make_row(1, [6])
    first = NOISE.of(row, 8)
    state = torch.get_rng_state()
    torch.manual_seed(99)
    torch.rand(5)
    assert torch.equal(NOISE.of(row, 8), first)
    torch.set_rng_state(state)
    NOISE.of(row, 8)
    assert torch.equal(torch.get_rng_state(), state)
    others = [replace(NOISE, seed=8), replace(NOISE, step=4)]
    assert not any(torch.equal(other.of(row, 8), first) for other in others)
    assert not torch.equal(NOISE.of(make_row(2, [6]), 8), first)


def test_transformers_has_the_same_size() -> None:
    from transformers.integrations.neftune import neftune_post_forward_hook

    class Embedding:
        training = True
        neftune_noise_alpha = 5.0

    zeros = torch.zeros(1, 100, 16)
    theirs = neftune_post_forward_hook(Embedding(), None, zeros)
    assert 0.12 < float(theirs.abs().max()) <= 0.125


def test_added_while_the_block_lasts_and_never_to_padding(
    make_trainee: MakeTrainee, make_row: MakeRow
) -> None:
    trainee, rows = make_trainee(), [make_row(0, [3]), make_row(1, [5])]
    embedding = trainee.peft.get_base_model().get_input_embeddings()
    ids = collate(rows).input_ids
    plain = embedding(ids)
    with on_embeddings(trainee, rows, NOISE):
        noisy = embedding(ids)
    assert torch.equal(embedding(ids), plain)
    width = plain.shape[-1]
    assert torch.equal(noisy[0, :3], plain[0, :3] + NOISE.of(rows[0], width))
    assert torch.equal(noisy[0, 3:], plain[0, 3:])
    assert torch.equal(noisy[1], plain[1] + NOISE.of(rows[1], width))


def test_training_feels_it_evaluation_does_not(make_trainee: MakeTrainee, plan: Plan) -> None:
    def loss(noise: Noise | None, micro: int) -> float:
        trainee = make_trainee()
        optimizer = torch.optim.SGD(trainee.parameters.values(), lr=0.0)
        settings = {"micro": micro, "lr": 0.0, "grad_clip": 1.0}
        result = train_step(trainee, optimizer, plan.rows[:4], **settings, noise=noise)
        assert evaluate_loss(trainee, plan.eval_rows, micro=1) == quiet
        return result.loss

    quiet = evaluate_loss(make_trainee(), plan.eval_rows, micro=1)
    assert loss(NOISE, 1) != loss(None, 1)
    assert loss(NOISE, 1) == pytest.approx(loss(NOISE, 4), abs=1e-6)  # not of the split


def test_off_means_none(make_optim: Callable[..., object]) -> None:
    assert step_noise(make_optim(), seed=1, step=2) is None
    assert step_noise(make_optim(neftune_alpha=5.0), seed=1, step=2) == Noise(5.0, 1, 2)
