"""Multiple choice by likelihood, against one unbatched forward pass per choice."""

import os
from types import SimpleNamespace

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.evaluation.choices import best, choice_scores, choose
from hashtune.evaluation.suites import SuiteItem
from hashtune.store.synthetic import build_synthetic


def quiet(items, *, total, label):
    yield from items


def numbers(text, add_special_tokens=False):
    assert not add_special_tokens
    return [int(word) for word in text.split()]


class WordTemplate:
    """Questions and choices are ids as text."""

    tokenizer = SimpleNamespace(encode=numbers)

    def prompt_ids(self, messages):
        (message,) = messages
        assert message["role"] == "user"
        return numbers(message["content"])


ITEMS = [
    SuiteItem("a", "s", "k", "5 9 30", choices=("7 8 9", "11"), answer=0),
    SuiteItem("b", "s", "k", "77", choices=("100 200", "300 400", "100 201 5 6"), answer=1),
    SuiteItem("c", "s", "k", "5 6 7 8 9 10 11 12", choices=("13", "14", "15", "16"), answer=2),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=5)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():  # larger weights, so that each token of the prompt matters
        for parameter in model.model.layers.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    return model


def by_hand(model, prompt, choice):
    ids = torch.tensor([numbers(prompt) + numbers(choice)])
    with torch.no_grad():
        rows = model(ids).logits[0].log_softmax(-1)
    start = len(numbers(prompt))
    return sum(float(rows[start - 1 + k, token]) for k, token in enumerate(numbers(choice)))


@pytest.mark.parametrize("batch_size", [1, 2, 4, 20])
def test_scores_are_the_summed_log_probabilities_of_the_choice(model, batch_size):
    scores = choice_scores(model, WordTemplate(), ITEMS, batch_size=batch_size, progress=quiet)
    for item, found in zip(ITEMS, scores, strict=True):
        assert found == pytest.approx(
            [by_hand(model, item.prompt, choice) for choice in item.choices], abs=1e-4
        )


def test_the_most_likely_choice_wins(model):
    expected = []
    for item in ITEMS:
        scores = [by_hand(model, item.prompt, choice) for choice in item.choices]
        expected.append(scores.index(max(scores)))
    assert choose(model, WordTemplate(), ITEMS, batch_size=3, progress=quiet) == expected
    assert choose(model, WordTemplate(), [], batch_size=3, progress=quiet) == []


def test_only_logits_of_choice_positions_are_made_and_prompts_are_read_once(model, monkeypatch):
    kept = []
    forward = model.forward

    def spy(*args, **kwargs):
        output = forward(*args, **kwargs)
        kept.append(tuple(output.logits.shape[:2]))
        return output

    monkeypatch.setattr(model, "forward", spy)
    choice_scores(model, WordTemplate(), [ITEMS[2]], batch_size=8, progress=quiet)
    assert kept == [(1, 1)]  # four choices of one token
    choice_scores(model, WordTemplate(), [ITEMS[0]], batch_size=8, progress=quiet)
    assert kept[1:] == [(1, 1), (2, 2)]  # two choices, of three tokens and of one


def test_a_cache_that_cannot_be_repeated_gives_the_same_scores(model, monkeypatch):
    """Layers with recurrent states: each choice is read with its prompt."""
    shared = choice_scores(model, WordTemplate(), ITEMS, batch_size=8, progress=quiet)
    monkeypatch.setattr("hashtune.evaluation.choices.can_select", lambda cache: False)
    apart = choice_scores(model, WordTemplate(), ITEMS, batch_size=8, progress=quiet)
    for one, other in zip(shared, apart, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_a_tie_goes_to_the_lowest_index():
    assert best([-2.0, -1.0, -1.0]) == 1


def test_kept_scores_have_every_bit(model, tmp_path):
    from hashtune.evaluation.kept import Kept

    def scores(kept):
        return choice_scores(
            *(model, WordTemplate(), ITEMS), batch_size=2, progress=quiet, kept=kept
        )

    whole, kept = scores(None), Kept(tmp_path)
    assert scores(kept) == whole
    again = Kept(tmp_path)
    assert scores(again) == whole
    assert again.found == len(list(tmp_path.iterdir()))
