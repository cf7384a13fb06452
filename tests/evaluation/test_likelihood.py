"""Perplexity and bits per byte of references, against figures a reader can work out."""

import math
from types import SimpleNamespace

import pytest

from hashtune.evaluation.likelihood import figures, reference_likelihood
from hashtune.evaluation.tasks import TaskItem


def quiet(items, *, total, label):
    yield from items


class Halving:
    """Every token has probability 1/2; a token is a word."""

    template = SimpleNamespace(
        tokenizer=SimpleNamespace(encode=lambda text, add_special_tokens: text.split())
    )

    def __init__(self):
        self.asked = []

    def likelihoods(self, questions, *, batch_size, progress, kept):
        self.asked += [(of.messages[0]["content"], of.choices) for of in questions]
        return [[-math.log(2) * len(of.choices[0].split())] for of in questions]


ITEMS = [
    TaskItem(f"t{i}", [{"role": "user", "content": "unused"}], text)
    for i, text in enumerate(("ja ja", "é", "one two three four", "nein"))
]
PROMPTS = [[{"role": "user", "content": f"p{i}"}] for i in range(4)]


def test_a_coin_per_word():
    engine = Halving()
    told = reference_likelihood(engine, ITEMS, PROMPTS, 2, progress=quiet)
    assert engine.asked == [("p0", ("ja ja",)), ("p2", ("one two three four",))]
    # 2 + 4 words of one bit each, 5 + 18 bytes
    assert told == {
        "items": 2,
        "tokens": 6,
        "bytes": 23,
        "perplexity": 2.0,
        "bits_per_byte": round(6 / 23, 6),
    }


def test_bytes_are_those_of_utf_8():
    told = reference_likelihood(Halving(), ITEMS[1:2], PROMPTS[1:2], 9, progress=quiet)
    assert (told["tokens"], told["bytes"], told["bits_per_byte"]) == (1, 2, 0.5)


@pytest.mark.parametrize("count", [0, 3])
def test_without_items_there_is_no_figure(count):
    told = reference_likelihood(Halving(), [], [], count, progress=quiet)
    assert told == {"items": 0, "tokens": 0, "bytes": 0, "perplexity": None, "bits_per_byte": None}


def test_a_broken_model_has_no_perplexity():
    told = figures(-1e9, items=1, tokens=1, size=1)
    assert told["perplexity"] is None
    assert told["bits_per_byte"] > 1e9
