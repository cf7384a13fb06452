"""Answers learned by heart: from training, on another prompt, and not the reference."""

import json

import pytest

from hashtune.evaluation.memorisation import memorised
from hashtune.evaluation.tasks import TaskItem
from hashtune.spec.schema import Task


def task(metric="token_f1"):
    return Task(metric=metric, user_metric=None, fields=[], json_schema=None, base_instruction=None)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def train(*conversations):
    return [
        {"id": f"r{i}", "messages": json.dumps(messages)}
        for i, messages in enumerate(conversations)
    ]


def item(name, prompt, reference):
    return TaskItem(name, [user(prompt)], reference)


ROWS = train(
    [user("Where is my parcel?"), assistant("It left on Monday.")],
    [user("Hello"), assistant("Hi."), user("And my refund?"), assistant("It takes three days.")],
)


def found(items, answers, rows=ROWS, **changes):
    return memorised(task(**changes), items, [{"answer": answer} for answer in answers], rows)


def test_an_answer_by_heart_is_counted_with_both_ids():
    """Planted: the second test item is answered with the text of a training row."""
    items = [item("a", "Can I pay later?", "Yes."), item("b", "Is it broken?", "Send it back.")]
    assert found(items, ["Yes.", " It left on Monday.\n"]) == {
        "examples": 1,
        "share": 0.5,
        "ids": [{"id": "b", "train_id": "r0"}],
    }


def test_earlier_turns_of_a_conversation_count_too():
    assert found([item("a", "Open today?", "No.")], ["Hi."])["ids"] == [
        {"id": "a", "train_id": "r1"}
    ]


@pytest.mark.parametrize(
    ("prompt", "reference", "answer"),
    [
        ("Another question", "It left on Monday.", "It left on Monday."),  # right
        ("Where is my parcel?", "On its way.", "It left on Monday."),  # what this prompt was taught
        ("Another question", "No.", "It left on Tuesday."),  # not word for word
        ("Another question", "No.", "  "),  # nothing was said
    ],
)
def test_what_is_no_memorisation(prompt, reference, answer):
    rows = [*ROWS, *train([user("x"), assistant(" ")])]
    assert found([item("a", prompt, reference)], [answer], rows)["examples"] == 0


def test_one_training_prompt_that_is_the_test_prompt_explains_the_answer():
    rows = [*ROWS, *train([user("Other"), assistant("It left on Monday.")])]
    assert found([item("a", "Other", "No.")], ["It left on Monday."], rows)["examples"] == 0


@pytest.mark.parametrize("metric", ["exact_match", "normalised_match", "numeric_answer"])
def test_labels_and_numbers_repeat_by_nature(metric):
    assert found([item("a", "q", "no")], ["Hi."], metric=metric) is None


def test_twenty_are_shown_and_all_are_counted():
    items = [item(f"t{i}", f"q{i}", "no") for i in range(25)]
    told = found(items, ["Hi."] * 25)
    assert (told["examples"], told["share"], len(told["ids"])) == (25, 1.0, 20)
