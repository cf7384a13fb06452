"""Rows of added tokens are trained, written, loaded again; a row that is not trained is seen."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hashtune.errors import InputError
from hashtune.evaluation.models import attach
from hashtune.records import Row
from hashtune.spec.schema import Method
from hashtune.store.added_tokens import grow
from hashtune.training.adapter import CONFIG, WEIGHTS, write_adapter
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.plan import Plan
from hashtune.training.proof import prove_adapter
from hashtune.training.summary import summarise
from hashtune.training.tokens import check_trainable, still_tokens

IDS = [2, 512, 513]  # <|im_end|> is there; the base has 512 rows
DELTA = "token_adapter.trainable_tokens_delta"
EMBEDDING, HEAD = (
    f"base_model.model.model.embed_tokens.{DELTA}",
    f"base_model.model.lm_head.{DELTA}",
)
NO_DECAY = {"weight_decay": 0.0}  # decay moves every row
METHOD = Method(
    type="lora",
    variant="lora",
    r=2,
    alpha=4.0,
    dropout=0.0,
    targets="all-linear",
    virtual_tokens=None,
)


def bare(make_base: Callable[..., Any], *, tied: bool) -> Any:
    """The toy base with room for two more tokens; untied, its head has weights of its own."""
    base = make_base()
    if not tied:
        base.config.tie_word_embeddings = False
        base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().flip(0))
    grow(base, 514)
    return base


def trainee_of(base: Any, tokens: list[int] = IDS) -> Trainee:
    return build_trainee(base, METHOD, precision="fp32", seed=7, tokens=tokens)


@pytest.fixture
def chats() -> Plan:
    """Three steps over one row: <user 512> 40 41 <end 513> 2, all but the first trained."""
    ids = [512, 40, 41, 513, 2]
    row = Row(0, ["e"], [5], ids, [-100, *ids[1:]])
    return Plan([row], [[0], [0], [0]], [row])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_three_steps_move_the_rows_and_the_adapter_brings_them_back(
    make_base: Callable[..., Any],
    make_loop: Callable[..., Loop],
    chats: Plan,
    tmp_path: Path,
    tied: bool,
) -> None:
    from peft import PeftModel

    trainee = trainee_of(bare(make_base, tied=tied))
    loop = make_loop("run", trainee=trainee, the_plan=chats, eval_every_steps=100, optim=NO_DECAY)
    loop.run()
    adapter = tmp_path / "adapter"
    write_adapter(trainee.peft, adapter, base_name="toy", revision="0")
    written = load_file(adapter / WEIGHTS)
    assert {name for name in written if DELTA in name} == {EMBEDDING, *([] if tied else [HEAD])}
    before = bare(make_base, tied=tied)
    moved = written[EMBEDDING] != before.get_input_embeddings().weight[IDS]
    # the toy reads 512 and 513; id 2 comes last, so only a tied head moves its row
    assert moved.any(dim=1).tolist() == [tied, True, True]
    if not tied:
        head = before.get_output_embeddings().weight[IDS]
        assert (written[HEAD] != head).any(dim=1).all()
    assert still_tokens(trainee.peft) == []
    assert summarise(loop, adapter)["steps"] == 3
    assert json.loads((adapter / CONFIG).read_text())["trainable_token_indices"] == {
        "embed_tokens": IDS,
        "lm_head": IDS,
    }
    ids = torch.tensor([[512, 40, 41, 513, 2]])
    with torch.no_grad():
        wanted = trainee.peft.eval()(input_ids=ids).logits
        ours = attach(bare(make_base, tied=tied), adapter).eval()(input_ids=ids).logits
        # the steps of the model card: any room will do, the adapter fills the rows
        plain = make_base()
        if not tied:
            plain = bare(make_base, tied=False)
        plain.resize_token_embeddings(514, mean_resizing=False)
        theirs = PeftModel.from_pretrained(plain, str(adapter)).eval()(input_ids=ids).logits
    assert torch.equal(ours, wanted) and torch.equal(theirs, wanted)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_rows_without_master_weights_move_and_are_proven(
    make_base: Callable[..., Any],
    make_loop: Callable[..., Loop],
    chats: Plan,
    tmp_path: Path,
    tied: bool,
) -> None:
    base = bare(lambda: make_base(torch.bfloat16), tied=tied)
    trainee = build_trainee(
        base, METHOD, precision="bf16", seed=7, tokens=IDS, master_weights=False
    )
    loop = make_loop("run", trainee=trainee, the_plan=chats, eval_every_steps=100, optim=NO_DECAY)
    loop.run()
    write_adapter(trainee.peft, tmp_path / "adapter", base_name="toy", revision="0")
    written = load_file(tmp_path / "adapter" / WEIGHTS)
    assert {tensor.dtype for tensor in written.values()} == {torch.bfloat16}
    prove_adapter(trainee, tmp_path / "adapter", chats.rows[0], updates=3, start={})
    assert still_tokens(trainee.peft) == []


def test_without_added_tokens_nothing_changes(make_base: Callable[..., Any]) -> None:
    trainee = trainee_of(make_base(), [])
    assert all("lora_" in name for name in trainee.parameters)
    assert trainee.peft.peft_config["default"].trainable_token_indices is None
    assert still_tokens(trainee.peft) == []


def test_a_token_that_is_not_trainable_is_caught(make_base: Callable[..., Any]) -> None:
    """Planted: no row at all, a row too few, a frozen row, and a head left out."""
    without = trainee_of(bare(make_base, tied=True), []).peft
    with pytest.raises(AssertionError, match="the embedding has no trainable rows"):
        check_trainable(without, IDS)
    fewer = trainee_of(bare(make_base, tied=True), [2, 512]).peft
    with pytest.raises(AssertionError, match=r"ids \[513\] have no trainable row in the embedding"):
        check_trainable(fewer, IDS)
    frozen = trainee_of(bare(make_base, tied=False)).peft
    check_trainable(frozen, IDS)
    head = frozen.get_base_model().lm_head
    head.token_adapter.trainable_tokens_delta["default"].requires_grad_(False)
    with pytest.raises(AssertionError, match="the head has no trainable rows"):
        check_trainable(frozen, IDS)


def test_a_row_that_did_not_move_is_named_after_training(
    make_base: Callable[..., Any], make_loop: Callable[..., Loop], chats: Plan, tmp_path: Path
) -> None:
    """Planted: id 513 gets its old row back."""
    trainee = trainee_of(bare(make_base, tied=True))
    loop = make_loop("run", trainee=trainee, the_plan=chats, eval_every_steps=100, optim=NO_DECAY)
    loop.run()
    layer = trainee.peft.get_base_model().get_input_embeddings().token_adapter
    with torch.no_grad():
        rows = layer.trainable_tokens_delta["default"]
        rows[2] = layer.trainable_tokens_original["default"][2]
    assert still_tokens(trainee.peft) == [513]
    write_adapter(trainee.peft, tmp_path / "adapter", base_name="toy", revision="0")
    with pytest.raises(InputError, match=r"rows of the added tokens \[513\] did not move"):
        prove_adapter(
            trainee,
            tmp_path / "adapter",
            chats.rows[0],
            updates=loop.progress.updates,
            start={},
        )
