"""Engines behind one interface: the default, and vLLM as a stub module plays it."""

import json
import sys
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest

from hashtune.errors import InputError
from hashtune.evaluation import models
from hashtune.evaluation.engines.base import open_engine
from hashtune.evaluation.engines.transformers import TransformersEngine
from hashtune.evaluation.generate import Answer
from hashtune.evaluation.suites import SuiteItem
from hashtune.spec.metric_packages import VLLM, engine_findings

WORDS = ["pad", "stop", "yes", "no", "say", "ask", "well", "then"]
# what follows a prompt of one word; a real engine goes on until a stop of one token or the limit
TALK = {"say": "yes stop no", "ask": "no well then no", "yes": "no no no no"}


def ids_of(text, add_special_tokens=False):
    return [WORDS.index(word) for word in text.split()]


TEMPLATE = SimpleNamespace(
    tokenizer=SimpleNamespace(
        encode=ids_of, decode=lambda ids, **_: " ".join(WORDS[token] for token in ids)
    ),
    prompt_ids=lambda messages: ids_of(messages[0]["content"]),
)


def quiet(items, *, total, label):
    yield from items


def stub():
    """A vllm with what the engine uses of it, keeping what it was given."""
    module, lora = ModuleType("vllm"), ModuleType("vllm.lora.request")

    class LLM:
        def __init__(self, **settings):
            module.settings, module.calls = settings, []

        def generate(self, prompts, params, *, lora_request, use_tqdm):
            assert use_tqdm is False
            rows = [prompt["prompt_token_ids"] for prompt in prompts]
            module.calls.append((rows, params, lora_request))
            return [self.output(row, params) for row in rows]

        def output(self, row, params):
            if params.get("prompt_logprobs") is not None:
                found = [None] + [{token: SimpleNamespace(logprob=-token)} for token in row[1:]]
                return SimpleNamespace(prompt_logprobs=found, outputs=[])
            ids = []
            for token in ids_of(TALK[WORDS[row[-1]]])[: params["max_tokens"]]:
                ids.append(token)
                if token in params["stop_token_ids"]:
                    break
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids)])

    module.LLM = LLM
    module.SamplingParams = lambda **settings: settings
    lora.LoRARequest = lambda *given: given
    return {"vllm": module, "vllm.lora": ModuleType("vllm.lora"), "vllm.lora.request": lora}


def spec(engine="vllm", added=()):
    return SimpleNamespace(
        evaluation=SimpleNamespace(engine=engine, base_precision="fp32", batch_size=2),
        tokenizer=SimpleNamespace(added_tokens=list(added)),
        determinism=SimpleNamespace(threads=1),
    )


@pytest.fixture
def installed(monkeypatch):
    modules = stub()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    true = metadata.version
    version = VLLM[1]
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "vllm" else true(name))
    monkeypatch.setattr(models, "open_tokens", lambda *_, **__: (TEMPLATE, [1, (6, 7)]))
    monkeypatch.setattr("hashtune.store.loader.materialise", lambda manifest: "base")
    return modules["vllm"]


def adapter(folder, **settings):
    config = {"peft_type": "LORA", "r": 8, "use_dora": False} | settings
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def user(text):
    return [{"role": "user", "content": text}]


def test_vllm_is_refused_with_the_command_that_installs_it():
    with pytest.raises(InputError) as caught:
        open_engine(None, None, spec(), root=None)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("engine-package", "evaluation.engine")
    assert finding.fix == f"pip install vllm=={VLLM[1]}"
    assert [finding] == list(engine_findings("vllm"))  # what `spec` says before anything runs
    assert list(engine_findings("transformers")) == []


def test_another_version_of_vllm_is_refused(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _: "0.1")
    with pytest.raises(InputError, match=r"0\.1 is installed"):
        open_engine(None, None, spec(), root=None)


@pytest.mark.parametrize("settings", [{"peft_type": "PROMPT_TUNING"}, {"use_dora": True}])
def test_adapters_that_vllm_cannot_serve_are_refused(installed, tmp_path, settings):
    with pytest.raises(InputError, match="another kind"):
        open_engine(None, adapter(tmp_path, **settings), spec(), root=None)


def test_full_weights_and_added_tokens_are_refused_at_once(installed, tmp_path):
    with pytest.raises(InputError) as caught:
        open_engine(None, tmp_path, spec(added=["<x>"]), root=None)
    assert [finding.rule for finding in caught.value.findings] == ["engine-adapter"] * 2


def test_answers_are_cut_at_our_stops_and_come_in_input_order(installed):
    engine = open_engine(None, None, spec(), root=None)
    prompts = [user("say"), user("pad ask"), user("pad pad yes")]
    answers = engine.answers(prompts, max_new_tokens=4, batch_size=2, progress=quiet)
    assert answers == [
        Answer("yes", 2, True),
        Answer("no", 3, True),  # a stop of two tokens, which vLLM ran past
        Answer("no no no no", 4, False),
    ]
    assert [rows for rows, *_ in installed.calls] == [[[0, 0, 2], [0, 5]], [[4]]]
    _, params, request = installed.calls[0]
    assert request is None
    assert (params["temperature"], params["max_tokens"], params["ignore_eos"]) == (0.0, 4, True)
    assert params["stop_token_ids"] == [1]


def test_likelihoods_are_those_of_the_choice_alone(installed):
    engine = open_engine(None, None, spec(), root=None)
    items = [
        SuiteItem("a", "s", "k", "pad say", choices=("yes no", "stop")),
        SuiteItem("b", "s", "k", "ask", choices=("then",)),
    ]
    found = engine.likelihoods(items, batch_size=2, progress=quiet)
    assert found == [[-5.0, -1.0], [-7.0]]  # the stub's log-probability of a token is minus its id


def test_base_and_adapter_get_the_same_settings_but_for_lora(installed, tmp_path):
    open_engine(None, None, spec(), root=None)
    base = dict(installed.settings)
    engine = open_engine(None, adapter(tmp_path), spec(), root=None)
    assert installed.settings == base | {"enable_lora": True, "max_lora_rank": 8}
    assert (base["dtype"], base["enable_prefix_caching"]) == ("float32", False)
    engine.answers([user("say")], max_new_tokens=4, batch_size=2, progress=quiet)
    assert installed.calls[0][2] == ("adapter", 1, str(tmp_path.resolve()))


@pytest.mark.parametrize(
    ("config", "room"),
    [({"r": 1}, 1), ({"r": 4}, 8), ({"r": 16}, 16), ({"r": 8, "rank_pattern": {"q": 200}}, 256)],
)
def test_room_for_a_rank_is_one_that_vllm_takes(installed, tmp_path, config, room):
    """Planted: the rank itself, which vLLM refuses unless it is one of nine."""
    open_engine(None, adapter(tmp_path, **config), spec(), root=None)
    assert installed.settings["max_lora_rank"] == room


def test_a_rank_that_vllm_has_no_room_for_is_refused(installed, tmp_path):
    with pytest.raises(InputError, match="ranks up to 512, and this adapter has 1024"):
        open_engine(None, adapter(tmp_path, r=1024), spec(), root=None)


def test_the_default_engine_is_our_own_loop(monkeypatch):
    monkeypatch.setattr(models, "open_subject", lambda *_, **__: "subject")
    assert open_engine(None, None, spec("transformers"), root=None) == TransformersEngine("subject")
