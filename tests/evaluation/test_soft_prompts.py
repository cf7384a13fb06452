"""Answers and choices with a prompt or prefix: as PEFT gives them, whatever the batch pads."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.errors import InputError
from hashtune.evaluation.choices import choice_scores
from hashtune.evaluation.generate import generate_answers
from hashtune.evaluation.models import ADAPTER_FILE, attach
from hashtune.evaluation.suites import SuiteItem
from hashtune.store.synthetic import build_synthetic

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning"),  # PEFT's old name
]
KINDS = ("prompt", "prefix")
VIRTUAL, STOP = 3, 2
PROMPTS = [[(7 * i + 31 * j) % 500 + 5 for j in range(1 + 4 * i)] for i in range(3)]


class Words:
    """Texts are ids ("5 7"), as prompts and as answers."""

    def __init__(self) -> None:
        self.tokenizer = SimpleNamespace(decode=self.decode, encode=self.encode)

    def decode(self, ids: list[int], **_: bool) -> str:
        return " ".join(map(str, ids))

    def encode(self, text: str, **_: bool) -> list[int]:
        return [int(word) for word in text.split()]

    def prompt_ids(self, messages: Any) -> list[int]:
        return self.encode(messages[0]["content"])


def quiet(items: Any, *, total: int, label: str) -> Any:
    return iter(items)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=3)
    return folder


def base(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():  # the tiny model repeats itself; larger weights make each token matter
        for parameter in model.model.layers.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    return model


@pytest.fixture(params=KINDS)
def adapter(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Path:
    """Written by PEFT itself."""
    from peft import PrefixTuningConfig, PromptTuningConfig, get_peft_model

    config: Any = {"prompt": PromptTuningConfig, "prefix": PrefixTuningConfig}[request.param]
    torch.manual_seed(1)
    settings = config(num_virtual_tokens=VIRTUAL, task_type="CAUSAL_LM")
    model = get_peft_model(base(folder), settings)
    model.peft_config["default"].base_model_name_or_path = None
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def plain(folder: Path, adapter: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(base(folder), str(adapter)).eval()


def peft_logits(model: Any, ids: list[int]) -> Tensor:
    """Of one document without padding, (T, V): a prompt's own states come first."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids])).logits[0, -len(ids) :]
    return logits


def peft_answer(model: Any, ids: list[int], new: int) -> list[int]:
    """Greedy, the whole text again for each token."""
    written: list[int] = []
    while len(written) < new and written[-1:] != [STOP]:
        written.append(int(peft_logits(model, ids + written)[-1].argmax()))
    return [token for token in written if token != STOP]


def ask(model: Any, *, batch_size: int, new: int = 8) -> list[list[int]]:
    conversations: Any = [[{"role": "user", "content": Words().decode(ids)}] for ids in PROMPTS]
    template: Any = Words()
    answers = generate_answers(
        model,
        template,
        conversations,
        stop_ids=(STOP,),
        max_new_tokens=new,
        batch_size=batch_size,
        progress=quiet,
    )
    return [Words().encode(answer.text) for answer in answers]


def test_answers_are_peft_s_in_any_batch(folder: Path, adapter: Path) -> None:
    """Three prompts of 1, 5 and 9 tokens: the shorter ones are padded at the left."""
    reference = plain(folder, adapter)
    wanted = [peft_answer(reference, ids, 8) for ids in PROMPTS]
    assert len({tuple(answer) for answer in wanted}) == 3
    model = attach(base(folder), adapter).eval()
    assert ask(model, batch_size=1) == wanted
    assert ask(model, batch_size=3) == wanted
    with model.disable_adapter():
        bare = ask(model, batch_size=3)
    assert bare == ask(base(folder).eval(), batch_size=3) != wanted


def test_choices_are_scored_after_the_virtual_tokens(folder: Path, adapter: Path) -> None:
    reference = plain(folder, adapter)
    prompt, choices = [5, 9, 11, 30], [[7], [8, 40, 41]]
    wanted = []
    for ids in choices:
        logs = peft_logits(reference, prompt + ids).log_softmax(-1)
        wanted.append(sum(float(logs[3 + at, token]) for at, token in enumerate(ids)))
    texts = [Words().decode(ids) for ids in choices]
    items = [SuiteItem("a", "s", "k", Words().decode(prompt), choices=tuple(texts), answer=0)]
    template: Any = Words()
    model = attach(base(folder), adapter).eval()
    (scores,) = choice_scores(model, template, items, batch_size=2, progress=quiet)
    assert scores == pytest.approx(wanted, rel=1e-5)
    assert wanted[0] != pytest.approx(wanted[1], rel=1e-2)


def test_virtual_tokens_take_positions(folder: Path, adapter: Path) -> None:
    """512 positions: 9 tokens, 3 virtual ones and 500 new ones just fit."""
    model = attach(base(folder), adapter).eval()
    with pytest.raises(InputError, match="exceeds the 509 positions"):
        ask(model, batch_size=3, new=501)


def test_a_file_without_virtual_tokens_is_refused(folder: Path, adapter: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, adapter / ADAPTER_FILE)
    with pytest.raises(InputError) as caught:
        attach(base(folder), adapter)
    rules = [finding.rule for finding in caught.value.findings]
    assert rules == ["adapter-missing", "adapter-unexpected"]
