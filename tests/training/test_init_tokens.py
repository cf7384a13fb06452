"""Continuing from an adapter with rows of added tokens: to the bit, then on; faults by name."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune.errors import InputError
from hashtune.evaluation.models import attach
from hashtune.records import Row
from hashtune.spec.init_tokens import TOKENS
from hashtune.spec.schema import InitAdapter, Method
from hashtune.store.added_tokens import grow
from hashtune.training.adapter import WEIGHTS, write_adapter
from hashtune.training.init_adapter import continue_from, read_adapter
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.plan import Plan
from hashtune.training.proof import check_tokens
from hashtune.training.summary import summarise
from hashtune.training.tokens import still_tokens
from hashtune.writers import read_json, sha256_file

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
TEXTS = {"<|b|>": 512, "<|im_end|>": 2, "<|a|>": 513}  # in the spec's order; 2 is in the base
IDS = [2, 512, 513]
DELTA = "token_adapter.trainable_tokens_delta"
EMBEDDING = f"base_model.model.model.embed_tokens.{DELTA}"
HEAD = f"base_model.model.lm_head.{DELTA}"
NO_DECAY = {"weight_decay": 0.0}  # decay moves every row
METHOD = Method(
    type="lora",
    variant="lora",
    r=2,
    alpha=4.0,
    dropout=0.0,
    targets=["q_proj", "v_proj"],
    virtual_tokens=None,
)
Fresh = Callable[..., Trainee]
Train = Callable[..., Loop]


def bare(make_base: Callable[..., Any], *, tied: bool, dtype: torch.dtype = torch.float32) -> Any:
    """The toy base with two rows more; untied, its head has its own."""
    base = make_base(dtype)
    if not tied:
        base.config.tie_word_embeddings = False
        base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().flip(0))
    grow(base, 514)
    return base


@pytest.fixture
def fresh(make_base: Callable[..., Any]) -> Fresh:
    """A fresh trainee over it."""

    def make(*, seed: int = 7, tied: bool = True, dtype: torch.dtype = torch.float32) -> Trainee:
        base = bare(make_base, tied=tied, dtype=dtype)
        precision = "fp32" if dtype == torch.float32 else "bf16"
        return build_trainee(base, METHOD, precision=precision, seed=seed, tokens=IDS)

    return make


@pytest.fixture
def first(fresh: Fresh, tmp_path: Path) -> Callable[..., Path]:
    """The folder of a trained adapter, every value off its beginning."""

    def write(*, tied: bool = True) -> Path:
        trainee = fresh(seed=3, tied=tied)
        with torch.no_grad():
            for parameter in trainee.parameters.values():
                parameter.add_(0.05)
        folder = tmp_path / "first"
        write_adapter(trainee.peft, folder, base_name="b", revision="1", tokens=TEXTS)
        return folder

    return write


@pytest.fixture
def train(make_loop: Train) -> Train:
    """Three steps over <512> 40 41 <513> 2."""

    def run(name: str, trainee: Trainee) -> Loop:
        ids = [512, 40, 41, 513, 2]
        row = Row(0, ["e"], [5], ids, [-100, *ids[1:]])
        plan = Plan([row], [[0]] * 3, [row])
        loop = make_loop(name, trainee=trainee, the_plan=plan, eval_every_steps=100, optim=NO_DECAY)
        loop.run()
        return loop

    return run


def read(folder: Path, tokens: dict[str, int] | None = None) -> dict[str, Tensor]:
    pin = InitAdapter(path=folder.name, sha256=sha256_file(folder / WEIGHTS))
    return read_adapter(pin, METHOD, tokens or TEXTS, folder.parent)


def values(trainee: Trainee) -> dict[str, Tensor]:
    return {n.replace(".default", ""): p.detach().clone() for n, p in trainee.parameters.items()}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_value_is_taken_to_the_bit_and_the_base_keeps_its_own(
    tied: bool, dtype: torch.dtype, fresh: Fresh, first: Callable[..., Path]
) -> None:
    folder = first(tied=tied)
    written = load_file(folder / WEIGHTS)
    assert {name for name in written if DELTA in name} == {EMBEDDING, *([] if tied else [HEAD])}
    trainee = fresh(tied=tied, dtype=dtype)
    layer = trainee.peft.get_base_model().get_input_embeddings()
    own = layer.token_adapter.base_layer.weight.detach().clone()
    before = values(trainee)
    continue_from(trainee.peft, read(folder))
    after = values(trainee)
    assert after.keys() == written.keys()
    for name, tensor in written.items():
        assert torch.equal(after[name], tensor) and not torch.equal(before[name], tensor)
    assert torch.equal(layer.token_adapter.base_layer.weight, own)
    # what a token is looked up as: the adapter's row
    row = layer(torch.tensor([512]))[0]
    assert torch.equal(row, written[EMBEDDING][IDS.index(512)].to(dtype))


@pytest.mark.parametrize("tied", [True, False])
def test_the_rows_move_on_and_the_written_adapter_loads(
    tied: bool,
    *,
    make_base: Callable[..., Any],
    fresh: Fresh,
    first: Callable[..., Path],
    train: Train,
    tmp_path: Path,
) -> None:
    start = read(first(tied=tied))
    trainee = fresh(tied=tied)
    continue_from(trainee.peft, start)
    loop = train("on", trainee)
    now, rows = values(trainee), (EMBEDDING if tied else HEAD)
    assert bool((now[rows] != start[rows]).any(dim=1).all())
    assert still_tokens(trainee.peft, start) == []
    folder = tmp_path / "second"
    write_adapter(trainee.peft, folder, base_name="b", revision="1", tokens=TEXTS)
    assert summarise(loop, folder)["steps"] == 3
    assert read_json(folder / TOKENS) == [{"id": n, "text": t} for t, n in TEXTS.items()]
    again = read(folder)  # and so on from there
    assert all(torch.equal(again[name], tensor) for name, tensor in now.items())
    ids = torch.tensor([[512, 40, 41, 513, 2]])
    with torch.no_grad():
        ours = trainee.peft.eval()(input_ids=ids).logits
        assert torch.equal(
            attach(bare(make_base, tied=tied), folder).eval()(input_ids=ids).logits, ours
        )


def test_a_row_that_stays_where_it_began_is_named(
    fresh: Fresh, first: Callable[..., Path], train: Train
) -> None:
    """Planted: 513 gets the row that it continued from, which is not the base's."""
    start = read(first())
    trainee = fresh()
    continue_from(trainee.peft, start)
    train("on", trainee)
    rows = trainee.peft.get_base_model().get_input_embeddings().token_adapter
    with torch.no_grad():
        rows.trainable_tokens_delta["default"][2] = start[EMBEDDING][2]
    assert still_tokens(trainee.peft) == []  # beside the base's it looks trained
    assert still_tokens(trainee.peft, start) == [513]
    with pytest.raises(InputError, match=r"rows of the added tokens \[513\] did not move"):
        check_tokens(trainee.peft, start)


def test_other_ids_in_this_tokenizer_are_named(first: Callable[..., Path]) -> None:
    folder = first()
    with pytest.raises(InputError) as caught:
        read(folder, TEXTS | {"<|a|>": 514})
    [finding] = caught.value.findings
    assert (finding.rule, finding.file) == ("init-adapter", f"first/{TOKENS}")
    assert finding.message == (
        "row 513 of the adapter to continue from is '<|a|>', which has the id 514 in this base's "
        "tokenizer"
    )


def test_another_order_is_refused_before_a_tensor_is_read(
    first: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = first()
    load = "hashtune.training.init_adapter.load"
    monkeypatch.setattr(load, lambda data: pytest.fail("it read"))
    with pytest.raises(InputError, match="has rows of"):
        read(folder, dict(reversed(TEXTS.items())))


def test_rows_of_a_head_that_is_tied_here_have_no_place(
    fresh: Fresh, first: Callable[..., Path]
) -> None:
    for here, there, what in ((True, False, "holds"), (False, True, "lacks")):
        trainee = fresh(tied=here)
        before = values(trainee)
        with pytest.raises(InputError) as caught:
            continue_from(trainee.peft, read(first(tied=there)))
        [finding] = caught.value.findings
        assert finding.message.endswith(f"{what} rows of added tokens: {HEAD}")
        assert finding.field == "base_model.init_adapter" and "tied" in str(finding.fix)
        assert all(torch.equal(tensor, before[name]) for name, tensor in values(trainee).items())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.zeros(2, 64), "has shape [2, 64], the model needs [3, 64]"),
        (torch.full((3, 64), math.nan), "holds NaN or infinity"),
    ],
)
def test_a_broken_row_is_named(
    rows: Tensor, message: str, fresh: Fresh, first: Callable[..., Path]
) -> None:
    folder = first()
    save_file(load_file(folder / WEIGHTS) | {EMBEDDING: rows}, folder / WEIGHTS)
    with pytest.raises(InputError) as caught:
        continue_from(fresh().peft, read(folder))
    assert [finding.message for finding in caught.value.findings] == [f"{EMBEDDING} {message}"]


def test_without_added_tokens_the_adapter_is_two_files(
    make_trainee: Callable[..., Trainee], tmp_path: Path
) -> None:
    write_adapter(make_trainee().peft, tmp_path / "a", base_name="b", revision="1", tokens={})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "adapter_config.json",
        WEIGHTS,
    ]
