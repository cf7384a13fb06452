"""Suites answered by a scripted model: exact rows, in the order of the items."""

from types import SimpleNamespace

import torch

from hashtune.evaluation.answering import answer_suites, suite_summary
from hashtune.evaluation.engines.transformers import TransformersEngine
from hashtune.evaluation.models import Subject
from hashtune.evaluation.suites import SuiteItem

WORDS = ["pad", "stop", "yes", "no", "say", "ask", "maybe"]
NEXT = {"say": "yes", "yes": "stop", "ask": "no", "no": "no", "maybe": "say"}


def ids_of(text, add_special_tokens=False):
    return [WORDS.index(word) for word in text.split()]


class Scripted(torch.nn.Module):
    """The next word depends on the last one alone; every other word is equally unlikely."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace()

    def forward(self, *, input_ids, attention_mask, use_cache, logits_to_keep, **_):
        table = torch.zeros(len(WORDS), len(WORDS))
        for word, following in NEXT.items():
            table[WORDS.index(word), WORDS.index(following)] = 1.0
        logits = table[input_ids]
        kept = logits[:, -1:] if isinstance(logits_to_keep, int) else logits[:, logits_to_keep]
        cache = SimpleNamespace(layers=[], batch_select_indices=lambda indices: None)
        return SimpleNamespace(logits=kept, cache=cache)


class WordTemplate:
    tokenizer = SimpleNamespace(
        encode=ids_of, decode=lambda ids, **_: " ".join(WORDS[token] for token in ids)
    )

    def prompt_ids(self, messages):
        return ids_of(messages[0]["content"])


ITEMS = [
    SuiteItem("c", "s1", "k", "maybe say", choices=("no", "yes", "pad"), answer=1),
    SuiteItem("g", "s2", "talk", "say", rules=({"kind": "yes_no"},)),
    SuiteItem("d", "s1", "k", "yes", choices=("no", "pad"), answer=1),
    SuiteItem("h", "s2", "talk", "ask", rules=({"kind": "max_words", "value": 2},)),
]


def quiet(items, *, total, label):
    yield from items


def test_rows_are_exact_and_in_item_order():
    engine = TransformersEngine(Subject(Scripted(), WordTemplate(), [WORDS.index("stop")]))
    rows = answer_suites(engine, ITEMS, max_new_tokens=3, batch_size=2, progress=quiet)
    assert [(row["id"], row["score"], row["tokens"], row["finished"]) for row in rows] == [
        ("c", 1.0, 0, True),
        ("g", 1.0, 2, True),
        ("d", 0.0, 0, True),  # a tie: the first choice is taken
        ("h", 0.0, 3, False),
    ]
    # log(e / (e + 6)) for the word that follows, log(1 / (e + 6)) for any other
    assert [row["output"] for row in rows] == [
        "yes [-2.165422, -1.165422, -2.165422]",
        "yes",
        "no [-2.165422, -2.165422]",
        "no no no",
    ]
    assert suite_summary(rows) == {
        "items": 4,
        "score": 0.5,
        "slices": {
            "k": {"items": 2, "score": 0.5},  # choices have no length
            "talk": {
                "items": 2,
                "score": 0.5,
                "generated": {"items": 2, "finished_share": 0.5, "tokens_mean": 2.5},
            },
        },
    }


def test_no_suites_no_rows():
    engine = TransformersEngine(Subject(Scripted(), WordTemplate(), [1]))
    rows = answer_suites(engine, [], max_new_tokens=3, batch_size=2, progress=quiet)
    assert suite_summary(rows) == {"items": 0, "score": None, "slices": {}}
