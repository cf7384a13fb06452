"""A prompt or prefix on disk: plain PEFT opens it, and a stopped run ends in the same bits."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hashtune.errors import InputError, Stopped
from hashtune.records import Row
from hashtune.training.adapter import CONFIG, WEIGHTS, write_adapter
from hashtune.training.batches import collate
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan
from hashtune.training.proof import prove_adapter

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning"),  # PEFT's old name
]
MakeRow = Callable[[int, list[int]], Row]
MakeSoft = Callable[..., Trainee]


@pytest.fixture(params=["prompt", "prefix"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trained(kind: str, make_soft: MakeSoft) -> Trainee:
    trainee = make_soft(kind)
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.05)
    return trainee


@pytest.fixture
def row(make_row: MakeRow) -> Row:
    return make_row(3, [9])


def write(trainee: Trainee, folder: Path) -> Path:
    write_adapter(trainee.peft, folder, base_name="b", revision="1")
    return folder


def test_the_proof_passes_and_leaves_the_model_as_it_was(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    folder = write(trained, tmp_path / "a")
    assert list(load_file(folder / WEIGHTS)) == ["prompt_embeddings"]
    prove_adapter(trained, folder, row, updates=3, start={})
    trainable = {n: p for n, p in trained.peft.named_parameters() if p.requires_grad}
    assert trainable.keys() == trained.parameters.keys()
    assert all(p is trained.parameters[name] for name, p in trainable.items())
    assert (trained.peft.training, list(trained.peft.peft_config)) == (True, ["default"])
    write(trained, tmp_path / "b")
    for name in (WEIGHTS, CONFIG):
        assert (tmp_path / "b" / name).read_bytes() == (folder / name).read_bytes()


def test_plain_peft_opens_it_and_gives_the_same_logits(
    trained: Trainee, row: Row, tmp_path: Path, make_base: Callable[..., Any]
) -> None:
    from peft import PeftModel

    folder = write(trained, tmp_path / "a")
    model = PeftModel.from_pretrained(make_base(), str(folder)).eval()
    batch = collate([row])
    trained.peft.eval()
    with torch.no_grad():
        ours = trained.head(trained.hidden(batch))
        theirs = model(input_ids=batch.input_ids).logits[:, -9:]
    assert torch.allclose(ours, theirs, atol=1e-6)
    with torch.no_grad(), trained.peft.disable_adapter():
        bare = trained.head(trained.hidden(batch))
        assert torch.equal(bare, make_base()(input_ids=batch.input_ids).logits)
    assert not torch.allclose(ours, bare, atol=1e-3)


def test_virtual_tokens_that_did_not_move_are_named(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    (name,) = trained.parameters
    with torch.no_grad():
        trained.parameters[name][1] = trained.initial[name][1]
    folder = write(trained, tmp_path / "a")
    with pytest.raises(InputError) as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    (finding,) = caught.value.findings
    assert (finding.rule, finding.message) == (
        "untrained-prompt",
        "1 parts of the virtual tokens did not move: token 1",
    )
    prove_adapter(trained, folder, row, updates=0, start={})  # nothing was to move


def test_another_value_or_number_of_tokens_in_the_file(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    folder = write(trained, tmp_path / "a")
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor + 0.5 for name, tensor in tensors.items()}, folder / WEIGHTS)
    with pytest.raises(AssertionError, match="logits are off by up to"):
        prove_adapter(trained, folder, row, updates=3, start={})
    config = json.loads((folder / CONFIG).read_text())
    assert (config["num_virtual_tokens"], config["base_model_name_or_path"]) == (3, "b")


def test_resume_is_exact(
    kind: str, plan: Plan, make_loop: Callable[..., Loop], make_soft: MakeSoft
) -> None:
    def single(row: Row) -> Row:
        return replace(row, example_ids=row.example_ids[:1], lengths=[sum(row.lengths)])

    rows = [[single(row) for row in rows] for rows in (plan.rows, plan.eval_rows)]
    unpacked = Plan(rows[0], plan.steps, rows[1])

    def loop(run: str, **more: Any) -> Loop:
        return make_loop(run, trainee=make_soft(kind), the_plan=unpacked, select="best", **more)

    straight, resumed = loop("straight"), loop("resumed")
    straight.run()
    with pytest.raises(Stopped):
        loop("resumed", stop_after=3).run()
    resumed.run()
    (one,), (other,) = (made.trainee.parameters.values() for made in (straight, resumed))
    assert torch.equal(one, other)
    assert resumed.progress == straight.progress
    assert not torch.equal(one, straight.trainee.initial[next(iter(straight.trainee.parameters))])
