"""Prompt and prefix: PEFT's loss and gradients, and virtual tokens that all train.

Stated tolerance beside a plain PEFT model in fp32, over a plain and a quantised base: loss 1e-6
relative, the gradient 1e-5 of its largest element.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.errors import InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training.batches import collate
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee
from hashtune.training.soft_prompts import check_all_parts, check_single_documents
from hashtune.training.step import train_step

MakeBase = Callable[..., Any]
MakeSoft = Callable[..., Trainee]
MakeRow = Callable[[int, list[int]], Row]
WEIGHT = "prompt_encoder.default.embedding.weight"
KINDS = ("prompt", "prefix")
STORED = ("none", "nf4", "int8")
PLAIN_WARNINGS = (
    "ignore:.*is_gradient_checkpointing.*:FutureWarning",
    "ignore:.*past_key_values.*:FutureWarning",  # PEFT 0.21 passes the cache by its old name
)
pytestmark = [pytest.mark.filterwarnings(text) for text in PLAIN_WARNINGS]


def plain(base: Any, kind: str, weight: Tensor) -> Any:
    """As the documentation of PEFT writes it, with nothing of this project but the weights."""
    from peft import (
        PrefixTuningConfig,
        PromptTuningConfig,
        get_peft_model,
        prepare_model_for_kbit_training,
    )

    if getattr(base, "is_quantized", False):
        base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    config: Any = {"prompt": PromptTuningConfig, "prefix": PrefixTuningConfig}[kind]
    model = get_peft_model(base, config(num_virtual_tokens=3, task_type="CAUSAL_LM")).train()
    (name,) = [name for name, p in model.named_parameters() if p.requires_grad]
    assert name == WEIGHT
    with torch.no_grad():
        model.get_parameter(WEIGHT).copy_(weight)
    return model


def ours(trainee: Trainee, rows: list[Row]) -> tuple[float, Tensor]:
    batch = collate(rows)
    sums = token_losses(trainee.hidden(batch), batch.labels, trainee.head)
    (sums.loss / sums.tokens).backward()
    grad = trainee.parameters[WEIGHT].grad
    assert grad is not None
    return float(sums.loss.detach()) / sums.tokens, grad


def theirs(model: Any, rows: list[Row]) -> tuple[float, Tensor]:
    """Padding at the right with a mask, as a collator of transformers makes it."""
    batch = collate(rows)
    lengths = torch.tensor([len(row.input_ids) for row in rows])
    mask = (torch.arange(batch.input_ids.shape[1]) < lengths[:, None]).long()
    loss = model(input_ids=batch.input_ids, attention_mask=mask, labels=batch.labels).loss
    loss.backward()
    return float(loss.detach()), model.get_parameter(WEIGHT).grad


@pytest.mark.parametrize("lengths", [(9, 9), (9, 5)], ids=["equal", "padded"])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_peft(
    kind: str,
    *,
    stored: str,
    lengths: tuple[int, int],
    make_soft: MakeSoft,
    make_base: MakeBase,
    make_row: MakeRow,
) -> None:
    trainee = make_soft(kind, stored=stored)
    rows = [make_row(number, [length]) for number, length in enumerate(lengths)]
    loss, grad = ours(trainee, rows)
    base = make_base(stored=stored)
    their_loss, their_grad = theirs(plain(base, kind, trainee.initial[WEIGHT]), rows)
    assert loss == pytest.approx(their_loss, rel=1e-6)
    largest = float(their_grad.abs().max())
    assert largest > 0.0
    assert float((grad - their_grad).abs().max()) <= 1e-5 * largest


@pytest.mark.parametrize("kind", KINDS)
def test_positions_that_count_from_the_document_are_no_parity(
    kind: str,
    make_soft: MakeSoft,
    make_base: MakeBase,
    make_row: MakeRow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted fault: the tokens' positions do not follow the virtual ones."""
    trainee, rows = make_soft(kind), [make_row(1, [9])]
    their_loss, _ = theirs(plain(make_base(), kind, trainee.initial[WEIGHT]), rows)
    backbone = trainee.peft.get_base_model().model
    right = backbone.forward

    def shifted(*, position_ids: Tensor, **others: Any) -> Any:
        return right(position_ids=(position_ids - 2).clamp(min=0), **others)

    monkeypatch.setattr(backbone, "forward", shifted)
    loss, _ = ours(trainee, rows)
    assert loss != pytest.approx(their_loss, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_another_base_than_the_quantised_one_is_no_parity(
    kind: str, make_soft: MakeSoft, make_base: MakeBase, make_row: MakeRow
) -> None:
    """Planted fault: NF4 here, whole weights there."""
    trainee, rows = make_soft(kind, stored="nf4"), [make_row(1, [9])]
    loss, _ = ours(trainee, rows)
    their_loss, _ = theirs(plain(make_base(), kind, trainee.initial[WEIGHT]), rows)
    assert loss != pytest.approx(their_loss, rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize(("kind", "shape"), [("prompt", (3, 64)), ("prefix", (3, 2 * 2 * 2 * 16))])
def test_one_fp32_parameter_over_every_base(
    kind: str,
    *,
    shape: tuple[int, int],
    stored: str,
    precision: str,
    make_soft: MakeSoft,
    make_row: MakeRow,
) -> None:
    """64 wide; 2 layers of keys and values with 2 heads of 16."""
    trainee = make_soft(kind, precision=precision, stored=stored)
    base = precision if stored == "none" else stored
    assert trainee.route == f"fp32 adapter, {base} base, {precision} autocast"
    assert {n: (p.shape, p.dtype) for n, p in trainee.parameters.items()} == {
        WEIGHT: (shape, torch.float32)
    }
    assert sum(p.requires_grad for p in trainee.peft.parameters()) == 1
    with trainee.autocast():
        _, grad = ours(trainee, [make_row(1, [9])])
    assert grad.dtype == torch.float32 and bool(grad.any(dim=1).all())


def test_a_prompt_begins_as_embeddings_and_the_seed_alone_draws_them(make_soft: MakeSoft) -> None:
    trainee = make_soft("prompt")
    table = trainee.peft.get_base_model().get_input_embeddings().weight
    for vector in trainee.initial[WEIGHT]:
        assert bool((table == vector).all(dim=1).any())
    torch.rand(3)
    for kind in KINDS:
        one, same, other = (make_soft(kind, seed=seed).initial[WEIGHT] for seed in (7, 7, 8))
        assert torch.equal(one, same) and not torch.equal(one, other)


def changes(kind: str) -> Tensor:
    return torch.ones(3, 64 if kind == "prompt" else 128)


@pytest.mark.parametrize(
    ("kind", "place", "named"),
    [
        ("prompt", (1, slice(None)), "1 parts of the virtual tokens did not move: token 1"),
        ("prefix", (2, slice(None)), "1 parts of the virtual tokens did not move: token 2"),
        (
            "prefix",
            (slice(None), slice(64, 96)),
            "1 parts of the virtual tokens did not move: keys of layer 1",
        ),
        (
            "prefix",
            (slice(None), slice(32, 64)),
            "1 parts of the virtual tokens did not move: values of layer 0",
        ),
    ],
)
def test_what_stays_is_named(kind: str, place: Any, named: str, make_soft: MakeSoft) -> None:
    """A prefix of the toy: 32 numbers of keys of layer 0, 32 of its values, then layer 1."""
    peft, change = make_soft(kind).peft, changes(kind)
    check_all_parts(peft, {WEIGHT: change}, what="did not move")
    change[place] = 0.0
    with pytest.raises(InputError) as caught:
        check_all_parts(peft, {WEIGHT: change}, what="did not move")
    (finding,) = caught.value.findings
    assert (finding.rule, finding.message) == ("untrained-prompt", named)


def test_a_virtual_token_without_gradient_stops_before_the_first_update(
    make_soft: MakeSoft, make_row: MakeRow
) -> None:
    trainee = make_soft("prefix")
    keep = torch.ones(3, 1)
    keep[0] = 0.0
    parameter = trainee.parameters[WEIGHT]
    parameter.register_hook(lambda grad: grad * keep)
    optimizer = torch.optim.SGD(trainee.parameters.values(), lr=0.0)
    with pytest.raises(InputError, match=r"1 parts .* have a gradient of zero: token 0"):
        train_step(
            trainee, optimizer, [make_row(1, [5])], micro=1, lr=0.1, grad_clip=1.0, first=True
        )
    assert torch.equal(parameter, trainee.initial[WEIGHT])


def test_rows_of_several_documents_are_refused(make_row: MakeRow) -> None:
    from hashtune.spec.schema import Method

    none: dict[str, Any] = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets"))
    soft = Method(type="prefix", **none, virtual_tokens=3)
    single, packed = make_row(1, [5]), make_row(2, [5, 4])
    assert packed.labels[5] == IGNORE_INDEX
    check_single_documents(soft, [single])
    with pytest.raises(InputError) as caught:
        check_single_documents(soft, [single, packed])
    (finding,) = caught.value.findings
    assert (finding.rule, finding.fix) == ("packed-prompt", "data.packing=false")
    assert finding.message.startswith("1 rows hold several documents, row 2 first")
