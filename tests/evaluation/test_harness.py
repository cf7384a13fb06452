"""Tasks of lm-evaluation-harness: refused without the package, rows of ours with a stub of it."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from hashtune.errors import InputError
from hashtune.evaluation.harness import harness_rows, likelihoods
from hashtune.evaluation.models import Subject

SIZE = 8


class Counting(torch.nn.Module):
    """Finds the id after each token's likeliest (e to 1), and all others alike."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(max_position_embeddings=512)

    def forward(self, input_ids, logits_to_keep=0, **_):
        logits = torch.nn.functional.one_hot((input_ids + 1) % SIZE, SIZE).float()
        if isinstance(logits_to_keep, int):
            logits = logits[:, -logits_to_keep:]
        else:
            logits = logits[:, logits_to_keep]
        return SimpleNamespace(logits=logits + self.bias, cache=SimpleNamespace(layers=[object()]))


class Digits:
    """A tokenizer of digits: "012" is the ids 0, 1, 2."""

    eos_token_id = 7

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return [int(char) for char in text if char.isdigit()]

    def decode(self, ids, **_):
        return "".join(map(str, ids))


def quiet(items, *, total, label):
    assert total
    assert label
    return iter(items)


SUBJECT = Subject(Counting(), SimpleNamespace(tokenizer=Digits()), [7])
LIKELY = 1 - math.log(math.e + SIZE - 1)
OTHER = -math.log(math.e + SIZE - 1)


def request(*args):
    return SimpleNamespace(args=args)


@pytest.fixture
def stub(monkeypatch):
    """lm_eval as far as it is used; `evaluate` is given the model and gives samples."""
    package, api, model, tasks = (
        ModuleType(name)
        for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.tasks")
    )

    class LM:
        pass

    class TaskManager:
        def __init__(self, include_path):
            self.all_tasks = ["counting", "mine"] if include_path == "own" else ["counting"]

    model.LM, tasks.TaskManager = LM, TaskManager
    package.api, package.tasks, api.model = api, tasks, model
    for module in (package, api, model, tasks):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return package


def answered(stub, call, **options):
    """What the model says to the harness."""
    told = []

    def simple_evaluate(*, model, **settings):
        told.append((call(model), settings))
        return {"samples": {}}

    stub.simple_evaluate = simple_evaluate
    assert harness_rows(SUBJECT, ["counting"], batch_size=2, progress=quiet, **options) == []
    return told[0]


def test_without_the_package_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(InputError) as caught:
        harness_rows(SUBJECT, ["counting"], batch_size=2, progress=quiet)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.fix) == ("no-lm-eval", "pip install -e '.[lm-eval]'")


def test_likelihoods_and_whether_they_are_greedy():
    pairs = [([0], [1, 2]), ([0, 1], [3]), ([5], [6])]
    found = likelihoods(SUBJECT.model, pairs, batch_size=2, progress=quiet)
    assert [value for value, _ in found] == pytest.approx([2 * LIKELY, OTHER, LIKELY], abs=1e-6)
    assert [greedy for _, greedy in found] == [True, False, True]


def test_the_harness_gets_likelihoods_of_texts(stub):
    texts = [request("01 ", "2"), request("", "01"), request("3", "5")]
    found, settings = answered(stub, lambda model: model.loglikelihood(texts), limit=3)
    assert [value for value, _ in found] == pytest.approx([LIKELY, 2 * LIKELY, OTHER], abs=1e-6)
    assert [greedy for _, greedy in found] == [True, True, False]
    assert (settings["limit"], settings["bootstrap_iters"], settings["log_samples"]) == (3, 0, True)


def test_the_harness_gets_continuations_up_to_a_stop(stub):
    asked = [
        request("12", {"until": ["56"], "max_gen_toks": 9}),
        request("12", {"until": "x", "max_gen_toks": 2}),
        request("4", {}),
    ]
    found, _ = answered(stub, lambda model: model.generate_until(asked))
    assert found == ["34", "34", "56"]  # 7 ends a text


def sample(number, score, metric="acc"):
    return {
        "doc_id": number,
        "metrics": [metric, "other"],
        metric: score,
        "filtered_resps": [[-1.5]],
    }


def test_samples_become_rows(stub):
    samples = {"mine": [sample(0, 1.0)], "counting": [sample(3, 0, "acc_norm")]}
    stub.simple_evaluate = lambda **_: {"samples": samples}
    rows = harness_rows(SUBJECT, ["mine"], batch_size=2, progress=quiet, include="own")
    common = {"suite": "lm-eval", "output": "[[-1.5]]", "tokens": 0, "finished": True}
    assert rows == [
        {"id": "counting/3", "slice": "counting", "kind": "acc_norm", "score": 0.0, **common},
        {"id": "mine/0", "slice": "mine", "kind": "acc", "score": 1.0, **common},
    ]


def test_an_item_that_is_read_in_two_ways_is_one_row(stub):
    """Planted: gsm8k's two filters gave each item twice, and the mean of both."""
    ways = (("strict-match", 0.0), ("flexible-extract", 1.0))
    samples = [sample(n, score) | {"filter": way} for way, score in ways for n in (0, 1)]
    stub.simple_evaluate = lambda **_: {"samples": {"counting": samples, "mine": []}}
    rows = harness_rows(SUBJECT, ["counting"], batch_size=2, progress=quiet)
    assert [(row["id"], row["score"]) for row in rows] == [("counting/0", 0.0), ("counting/1", 0.0)]


@pytest.mark.parametrize("score", [None, 12.5, -0.1, True, (1.0, 2)])
def test_a_score_that_is_none_is_refused(stub, score):
    stub.simple_evaluate = lambda **_: {"samples": {"counting": [sample(0, score)]}}
    with pytest.raises(InputError, match="no score in"):
        harness_rows(SUBJECT, ["counting"], batch_size=2, progress=quiet)


def test_unknown_tasks_and_perplexity_are_refused(stub):
    with pytest.raises(InputError, match="there is no task 'mine'"):
        harness_rows(SUBJECT, ["mine"], batch_size=2, progress=quiet)
    with pytest.raises(InputError, match="no score of items"):
        answered(stub, lambda model: model.loglikelihood_rolling([request("1")]))
