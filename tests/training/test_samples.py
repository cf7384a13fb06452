"""Sample outputs: which prompts, which answers, and that taking them changes no bit of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune.errors import Stopped
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training.batches import collate
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan
from hashtune.training.samples import MOST, Prompt, Sampler, choose_prompts, greedy

MakeLoop = Callable[..., Loop]
NOT = IGNORE_INDEX


def eval_row(number: int, name: str, labels: list[int]) -> Row:
    ids = [10 + place for place in range(len(labels))]
    return Row(number, [name], [len(labels)], ids, labels)


def test_prompts_end_before_the_first_trained_token_and_references_with_its_run() -> None:
    rows = [
        eval_row(0, "c", [NOT, NOT, 12, 13, NOT, 15]),
        eval_row(1, "a", [NOT, 11]),
        eval_row(2, "b", [NOT, NOT, 12]),
    ]
    assert choose_prompts(rows, 2) == [Prompt("a", [10], [11]), Prompt("b", [10, 11], [12])]
    assert choose_prompts(rows, 9)[2] == Prompt("c", [10, 11], [12, 13])
    assert choose_prompts(rows, 0) == []


def test_a_packed_row_gives_its_first_document() -> None:
    row = Row(0, ["a", "b"], [2, 2], [5, 6, 7, 8], [NOT, 6, NOT, 8])
    assert choose_prompts([row], 1) == [Prompt("a", [5], [6])]


def test_a_row_without_prompt_or_answer_is_passed_over() -> None:
    rows = [eval_row(0, "a", [10, 11]), eval_row(1, "b", [NOT, NOT]), eval_row(2, "c", [NOT, 11])]
    assert choose_prompts(rows, 3) == [Prompt("c", [10], [11])]


@pytest.fixture
def trained(make_trainee: Callable[..., Trainee]) -> Trainee:
    """An adapter that changes answers."""
    trainee = make_trainee(dropout=0.5)
    with torch.no_grad():
        for number, parameter in enumerate(trainee.parameters.values()):
            parameter.fill_(0.05 * (number % 3 + 1))
    return trainee


def test_greedy_is_what_a_forward_over_everything_written_so_far_gives(trained: Trainee) -> None:
    trained.peft.eval()
    ids = [7, 300, 41]
    written = greedy(trained, ids, most=5, stop=None)
    with torch.no_grad():
        for token in written:
            states = trained.hidden(collate([Row(0, ["x"], [len(ids)], ids, ids)]))
            assert int(trained.head(states[0, -1:]).argmax()) == token
            ids = [*ids, token]
    assert greedy(trained, [7, 300, 41], most=5, stop=written[0]) == written[:1]


def sampler() -> Sampler:
    prompts = [Prompt("a", [7, 8, 9], [300, 41, 2]), Prompt("b", [5], [6] * 100)]
    return Sampler(prompts, lambda ids: " ".join(map(str, ids)))


def test_a_record_for_each_prompt(trained: Trainee) -> None:
    first, second = sampler().take(trained, step=4)
    answer = first.pop("answer")
    assert first == {
        "step": 4,
        "example": "a",
        "reference": "300 41 2",
        "tokens": 3,
        "finished": False,
    }
    assert len(answer.split()) == 3
    assert second["tokens"] == MOST  # not 100
    assert sampler().take(trained, step=4) == sampler().take(trained, step=4)
    begin = int(answer.split()[0])
    ended = Sampler([Prompt("a", [7, 8, 9], [1, 2, 3, begin])], str, {begin})
    (record,) = ended.take(trained, step=4)
    assert (record["tokens"], record["finished"]) == (1, True)


def test_taking_samples_leaves_modes_weights_gradients_and_random_numbers(
    trained: Trainee,
) -> None:
    before = {name: p.detach().clone() for name, p in trained.parameters.items()}
    modes = [module.training for module in trained.peft.modules()]
    random = torch.get_rng_state()
    sampler().take(trained, step=1)
    assert [module.training for module in trained.peft.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], p) for name, p in trained.parameters.items())
    assert all(p.grad is None for p in trained.parameters.values())


def test_the_adapter_has_the_same_bits_with_samples_and_without(
    make_loop: MakeLoop, plan: Plan
) -> None:
    plain = make_loop("plain", dropout=0.1)
    plain.run()
    said: list[str] = []
    sampled = make_loop("sampled", dropout=0.1, sampler=sampler(), said=said)
    sampled.run()
    for name, parameter in plain.trainee.parameters.items():
        assert torch.equal(parameter, sampled.trainee.parameters[name])
    assert sampled.progress.points == plain.progress.points
    assert plain.progress.samples == []
    found = [(record["step"], record["example"]) for record in sampled.progress.samples]
    assert found == [(2, "a"), (2, "b"), (4, "a"), (4, "b"), (6, "a"), (6, "b")]
    first = sampled.progress.samples[0]
    place = said.index(f"      answer  {first['answer']}")
    assert (said[place - 1], said[place + 1]) == ("    a", "      data    300 41 2")


def test_planted_fault_a_sampler_that_draws_a_random_number_changes_the_run(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_loop("plain", dropout=0.1)
    plain.run()
    take = Sampler.take

    def drawing(self: Sampler, trainee: Trainee, *, step: int) -> list[dict[str, Any]]:
        torch.rand(1)
        return take(self, trainee, step=step)

    monkeypatch.setattr(Sampler, "take", drawing)
    faulty = make_loop("faulty", dropout=0.1, sampler=sampler())
    faulty.run()
    assert faulty.progress.points != plain.progress.points


def test_samples_survive_a_resume(make_loop: MakeLoop, tmp_path: Path) -> None:
    straight = make_loop("straight", sampler=sampler())
    straight.run()
    with pytest.raises(Stopped):
        make_loop("cut", sampler=sampler(), stop_after=3).run()
    resumed = make_loop("cut", sampler=sampler())
    resumed.run()
    assert resumed.progress == straight.progress
    assert len(resumed.progress.samples) == 6
