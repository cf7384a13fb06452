"""The noise floor: zero where answers do not depend on the batch, and seen where they do."""

import os
from types import SimpleNamespace

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.evaluation.generate import Answer
from hashtune.evaluation.noise import chosen, noise_floor, plans
from hashtune.evaluation.noise_sides import suite_noise, task_noise
from hashtune.evaluation.suites import SuiteItem
from hashtune.evaluation.tasks import TaskItem, task_rows, task_summary
from hashtune.spec.schema import Evaluation, Task

TASK = Task(
    metric="exact_match", user_metric=None, fields=[], json_schema=None, base_instruction=None
)
ITEMS = [TaskItem(f"t{i}", [{"role": "user", "content": "q"}], "yes") for i in range(8)]


def evaluation(**changes):
    settings = {
        "engine": "transformers",
        "base_precision": "fp32",
        "batch_size": 8,
        "max_new_tokens": 4,
        "noise_items": 4,
        "likelihood_items": 0,
    }
    return Evaluation(**(settings | changes))


def quiet(items, *, total, label):
    yield from items


class Engine:
    """Answers "yes"; `moved` (batch size, row of its call) to another text."""

    template = None

    def __init__(self, moved=None):
        self.moved, self.asked = moved or {}, []

    def answers(self, conversations, *, batch_size, **_):
        self.asked.append((batch_size, len(conversations)))
        texts = [self.moved.get((batch_size, row), "yes") for row in range(len(conversations))]
        return [Answer(text, 1, True) for text in texts]


def measured(engine, **changes):
    prompts = [item.prompt for item in ITEMS]
    rows = task_rows(TASK, ITEMS, prompts, [Answer("yes", 1, True)] * len(ITEMS))
    settings = evaluation(**changes)
    return task_noise(
        engine, TASK, ITEMS, prompts, rows, evaluation=settings, root=None, progress=quiet
    )


def test_items_are_spread_evenly():
    assert chosen("abcdefgh", 4) == [0, 2, 4, 6]
    assert chosen("abcdefgh", 3) == [0, 2, 5]
    assert chosen("ab", 4) == [0, 1]
    assert chosen("", 4) == []


def test_plans_differ_from_each_other():
    assert plans(20, compared=50) == {
        "batch_1": (1, [list(range(20))]),
        "batch_4": (4, [list(range(20))]),
        "batch_16": (16, [list(range(20))]),
        "order": (50, [list(range(19, 0, -2)), list(range(18, -1, -2))]),
    }
    assert list(plans(4, compared=50)) == ["batch_1", "batch_4", "order"]
    assert list(plans(2, compared=50)) == ["batch_1", "batch_2"]
    assert plans(1, compared=50) == {"batch_1": (1, [[0]])}
    assert plans(0, compared=50) == {}


def test_batches_of_one_are_not_their_own_noise():
    """Planted: an engine that moves where rows share a batch, compared and repeated alone."""
    assert list(plans(4, compared=1)) == ["batch_4", "order"]
    assert plans(1, compared=1) == {}
    engine = Engine()
    assert measured(engine, batch_size=1, noise_items=1) == {
        "items": 0,
        "plans": [],
        "floor": None,
    }
    assert engine.asked == []
    assert measured(Engine({(4, 1): "no"}), batch_size=1)["floor"] == 0.25


def test_equal_answers_have_no_noise():
    engine = Engine()
    assert measured(engine) == {
        "items": 4,
        "plans": ["batch_1", "batch_4", "order"],
        "outputs_changed": 0,
        "scores_changed": 0,
        "floor": 0.0,
    }
    assert engine.asked == [(1, 4), (4, 4), (8, 2), (8, 2)]


def test_an_engine_that_depends_on_the_batch_is_seen():
    """Planted: alone, the second of four items gets another answer, in fours all but one do."""
    assert measured(Engine({(1, 1): "no"}))["floor"] == 0.25
    found = measured(Engine({(1, 1): "no", (4, 0): "no", (4, 1): "no", (4, 3): "No."}))
    assert (found["outputs_changed"], found["scores_changed"], found["floor"]) == (3, 3, 0.75)


def test_other_words_of_the_same_score_are_no_noise_of_the_score():
    found = measured(Engine({(8, 0): "YES"}))
    assert (found["outputs_changed"], found["scores_changed"], found["floor"]) == (2, 0, 0.0)


def test_gains_and_losses_do_not_cancel():
    """Planted: one item wins and one loses, so the mean stands still."""
    rows = [{"o": "a", "s": 0.0}, {"o": "b", "s": 1.0}]
    found = noise_floor(
        rows,
        2,
        compared=2,
        answer=lambda indices, size: [{"o": "c", "s": 1.0 - rows[i]["s"]} for i in indices],
        scores=lambda row: {"s": row["s"]},
        output="o",
    )
    assert found["floor"] == 1.0


def test_none_is_measured_when_switched_off():
    engine = Engine({(1, 0): "no"})
    assert measured(engine, noise_items=0) == {"items": 0, "plans": [], "floor": None}
    assert engine.asked == []


def test_choices_count_as_suite_items():
    """Planted: the likelihoods of two choices change places in a batch of one."""
    items = [SuiteItem(f"c{i}", "s", "k", "q", choices=("a", "b"), answer=0) for i in range(4)]

    class Choosing(Engine):
        def likelihoods(self, questions, *, batch_size, **_):
            return [[-2.0, -1.0] if batch_size == 1 else [-1.0, -2.0] for _ in questions]

    rows = [{"score": 1.0, "output": "a [-1.0, -2.0]"}] * 4
    found = suite_noise(
        *(Choosing(), items, rows), evaluation=evaluation(), max_new_tokens=4, progress=quiet
    )
    assert (found["floor"], found["outputs_changed"]) == (1.0, 4)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The tiny model, with weights large enough that each token matters."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hashtune.evaluation.engines.transformers import TransformersEngine
    from hashtune.evaluation.models import Subject
    from hashtune.store.synthetic import build_synthetic

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=3)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = SimpleNamespace(
        tokenizer=tokenizer,
        prompt_ids=lambda messages: tokenizer.encode(
            messages[0]["content"], add_special_tokens=False
        ),
    )
    return TransformersEngine(Subject(model, template, [2]))


def test_fp32_scores_are_equal_for_batches_of_1_4_and_16(engine):
    prompts = [[{"role": "user", "content": "ab " * (1 + i % 7) + str(i)}] for i in range(18)]
    ask = {"max_new_tokens": 6, "progress": quiet}
    whole = engine.answers(prompts, batch_size=18, **ask)
    items = [
        TaskItem(f"t{i}", prompt, answer.text if i % 2 else "other")
        for i, (prompt, answer) in enumerate(zip(prompts, whole, strict=True))
    ]
    rows = {
        size: task_rows(TASK, items, prompts, engine.answers(prompts, batch_size=size, **ask))
        for size in (1, 4, 16)
    }
    assert rows[1] == rows[4] == rows[16]
    assert task_summary(TASK, rows[1])["scores"] == {"answer": 0.5}
    settings = evaluation(noise_items=18, batch_size=18, max_new_tokens=6)
    found = task_noise(
        engine, TASK, items, prompts, rows[1], evaluation=settings, root=None, progress=quiet
    )
    assert found["plans"] == ["batch_1", "batch_4", "batch_16", "order"]
    assert (found["outputs_changed"], found["floor"]) == (0, 0.0)
    asked = [
        SuiteItem(f"c{i}", "s", "k", "ab" * (i + 1), choices=("a", "bc", "d")) for i in range(18)
    ]
    one, four, sixteen = (
        [row.index(max(row)) for row in engine.likelihoods(asked, batch_size=s, progress=quiet)]
        for s in (1, 4, 16)
    )
    assert one == four == sixteen
