"""Parts with a backward of their own: their formulas, where they are put, and the proof of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn import functional

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import Method
from hashtune.training.batches import Batch
from hashtune.training.documents import FUSED, attend_as
from hashtune.training.fused import attach as attaching
from hashtune.training.fused import attention, check, head
from hashtune.training.fused.attach import attach
from hashtune.training.fused.attention import CausalAttention
from hashtune.training.fused.check import check_fused, compare_fused
from hashtune.training.fused.head import HeadLoss
from hashtune.training.fused.lora import Frozen, GatedLinear, LoraLinear
from hashtune.training.fused.norm import RmsNorm
from hashtune.training.layouts import batch_of
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.optimizers import build_optimizer
from hashtune.training.plan import row_to_prove
from hashtune.training.step import evaluate_loss, train_step

MakeRow = Callable[[int, list[int]], Row]
MakeTrainee = Callable[..., Trainee]


def doubles(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made]


def frozen(out: int, width: int, *, bias: bool = True) -> Frozen:
    weight, offset = doubles((out, width), (out,), seed=1)
    return Frozen(weight.detach(), offset.detach() if bias else None, 2.0)


@pytest.mark.parametrize("bias", [True, False])
def test_lora_linear(bias: bool) -> None:
    x, a, b = doubles((2, 3, 5), (2, 5), (4, 2))
    fixed = frozen(4, 5, bias=bias)
    expected = functional.linear(x, fixed.weight, fixed.bias) + 2.0 * (x @ a.T) @ b.T
    assert torch.allclose(LoraLinear.apply(x, a, b, fixed), expected, atol=1e-13)
    assert gradcheck(lambda *free: LoraLinear.apply(*free, fixed), (x, a, b))


def test_lora_linear_by_hand() -> None:
    """x = (1, 2), A = (1, 1), B = 3, W = (1, 0), s = 2: y = 1 + 2 * 3 * 3 = 19."""
    x, a, b = (
        torch.tensor(value, requires_grad=True) for value in ([[1.0, 2]], [[1.0, 1]], [[3.0]])
    )
    y = LoraLinear.apply(x, a, b, Frozen(torch.tensor([[1.0, 0.0]]), None, 2.0))
    assert y.tolist() == [[19.0]]
    y.backward()
    assert (x.grad.tolist(), a.grad.tolist(), b.grad.tolist()) == (
        [[7.0, 6.0]],
        [[6.0, 12.0]],
        [[6.0]],
    )


def test_gated_linear() -> None:
    gate, up, a, b = doubles((2, 3, 5), (2, 3, 5), (2, 5), (4, 2))
    fixed = frozen(4, 5)
    h = functional.silu(gate) * up
    expected = functional.linear(h, fixed.weight, fixed.bias) + 2.0 * (h @ a.T) @ b.T
    assert torch.allclose(GatedLinear.apply(gate, up, a, b, fixed), expected, atol=1e-13)
    assert gradcheck(lambda *free: GatedLinear.apply(*free, fixed), (gate, up, a, b))


def test_norm() -> None:
    """Of (3, 4) the mean square is 12.5: divided by 3.5355 it is (0.8485, 1.1314)."""
    by_hand = RmsNorm.apply(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0)
    assert torch.allclose(by_hand, torch.tensor([[0.848528, 2.262742]]), atol=1e-6)
    x, weight = doubles((2, 3, 5), (5,))
    weight = weight.detach()
    expected = functional.rms_norm(x, (5,), weight, 1e-2)
    assert torch.allclose(RmsNorm.apply(x, weight, 1e-2), expected, atol=1e-14)
    assert gradcheck(lambda free: RmsNorm.apply(free, weight, 1e-2), (x,))


@pytest.mark.parametrize(("heads", "keys"), [(4, 4), (4, 2), (3, 1)])
def test_attention(heads: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", 4)
    for length in (1, 4, 9):
        tensors = doubles((1, heads, length, 3), (1, keys, length, 3), (1, keys, length, 2))
        expected = functional.scaled_dot_product_attention(
            *tensors, is_causal=True, scale=0.7, enable_gqa=True
        ).transpose(1, 2)
        assert torch.allclose(CausalAttention.apply(*tensors, 0.7), expected, atol=1e-14)
        assert gradcheck(lambda *free: CausalAttention.apply(*free, 0.7), tensors)


def test_attention_does_not_see_later_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: without the part above the diagonal it does."""
    query, key, value = (t.detach() for t in doubles((1, 2, 6, 3), (1, 2, 6, 3), (1, 2, 6, 3)))
    other = value.clone()
    other[:, :, -1] += 1
    before = CausalAttention.apply(query, key, value, 1.0)[:, :5]
    assert torch.equal(before, CausalAttention.apply(query, key, other, 1.0)[:, :5])
    zeros = lambda length, dtype: torch.zeros(length, length, dtype=dtype)  # noqa: E731
    monkeypatch.setattr(attention, "_above_diagonal", zeros)
    before = CausalAttention.apply(query, key, value, 1.0)[:, :5]
    assert not torch.equal(before, CausalAttention.apply(query, key, other, 1.0)[:, :5])


@pytest.mark.parametrize("chunk", [2, 5, 100])
def test_head(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", chunk)
    states, weight = doubles((5, 3), (7, 3))
    weight = weight.detach()
    targets = torch.tensor([0, 6, 2, 2, 5])
    loss, entropy, correct = HeadLoss.apply(states, targets, weight)
    logits = states @ weight.T
    expected = functional.cross_entropy(logits, targets, reduction="sum")
    p = logits.softmax(-1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-13)
    assert entropy.item() == pytest.approx(-(p * p.log()).sum().item(), rel=1e-13)
    assert correct.item() == int((logits.argmax(-1) == targets).sum())
    (ours,) = torch.autograd.grad(loss * 3, states)
    (theirs,) = torch.autograd.grad(expected * 3, states)
    assert torch.allclose(ours, theirs, atol=1e-14)


def test_head_without_gradients_makes_none() -> None:
    with torch.no_grad():
        loss, *_ = HeadLoss.apply(torch.zeros(2, 3), torch.tensor([0, 1]), torch.zeros(4, 3))
    assert loss.item() == pytest.approx(2 * 1.3862944)  # ln 4
    assert not loss.requires_grad


def fused(make_trainee: MakeTrainee, **options: Any) -> Trainee:
    trainee = make_trainee(targets=options.pop("targets", "all-linear"), **options)
    attend_as(trainee.peft.get_base_model(), "documents", [], "fused")
    return replace(trainee, fused=attach(trainee.peft, precision=trainee.precision))


def plain(make_trainee: MakeTrainee, **options: Any) -> Trainee:
    trainee = make_trainee(targets="all-linear", **options)
    attend_as(trainee.peft.get_base_model(), "documents", [])
    return trainee


def test_where_parts_are_put(make_trainee: MakeTrainee) -> None:
    """Two blocks of seven linear modules, two norms and a gated MLP; a norm behind them."""
    trainee = fused(make_trainee)
    assert trainee.fused.counts == {"linear": 14, "gated": 2, "norm": 5, "head": 1}
    assert trainee.peft.get_base_model().config._attn_implementation == FUSED
    some = fused(make_trainee, targets=("q_proj",))
    assert some.fused.counts == {"linear": 2, "gated": 0, "norm": 5, "head": 1}
    assert fused(make_trainee, precision="fp16").fused.head is None


@pytest.mark.parametrize(
    ("precision", "loss", "gradient"),
    [("fp32", 1e-6, 1e-5), ("bf16", 5e-3, 4e-2), ("fp16", 1e-3, 1e-2)],
)
def test_a_step_is_the_plain_one(
    make_trainee: MakeTrainee, make_row: MakeRow, precision: str, loss: float, gradient: float
) -> None:
    trainee = fused(make_trainee, precision=precision)
    difference = compare_fused(trainee, make_row(0, [60, 3]))
    assert difference.loss <= loss
    assert difference.gradient <= gradient


@pytest.mark.parametrize("lengths", [([9, 5, 1], [12]), ([12], [7]), ([8], [8])], ids=str)
def test_three_steps_are_the_plain_ones_and_the_same_twice(
    make_trainee: MakeTrainee,
    make_row: MakeRow,
    make_optim: Callable[..., Any],
    lengths: tuple[list[int], list[int]],
) -> None:
    def run(trainee: Trainee) -> tuple[list[float], dict[str, Tensor]]:
        optimizer = build_optimizer(trainee.parameters, make_optim())
        rows = [make_row(number, part) for number, part in enumerate(lengths)]
        losses = [
            train_step(trainee, optimizer, rows, micro=2, lr=1e-3, grad_clip=1.0).loss
            for _ in range(3)
        ]
        losses.append(evaluate_loss(trainee, rows, micro=1).loss)
        return losses, {name: p.detach() for name, p in trainee.parameters.items()}

    (one, ours), (again, twice) = run(fused(make_trainee)), run(fused(make_trainee))
    other, theirs = run(plain(make_trainee))
    assert one == again
    assert all(torch.equal(ours[name], twice[name]) for name in ours)
    assert one == pytest.approx(other, rel=1e-5)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in ours)


KINDS = {  # linear, gated, norm of two blocks
    "qwen2": (14, 2, 5),  # biases of q, k, v
    "qwen3": (14, 2, 9),  # norms of queries and keys
    "mistral": (14, 2, 5),
    "olmo2": (14, 2, 9),  # norms behind the layers
    "granite": (14, 2, 5),  # scores with a scale of their own
    "phi3": (8, 0, 5),  # gate and up in one layer
    "mixtral": (8, 0, 5),  # experts are no linear modules
    "gemma": (14, 0, 0),  # 1 + weight, and GELU
    "gemma3_text": (14, 0, 0),
    "cohere": (14, 2, 0),  # norms with a mean
    "starcoder2": (12, 0, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_many_kinds(kind: str, make_row: MakeRow) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 600}
    tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    tokens["logit_scale"] = 1.0  # of Cohere, whose own scale is refused
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **shape, **tokens), attn_implementation="sdpa"
    )
    attend_as(base, "documents", [], "fused")
    method = Method(
        **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
        **{"targets": "all-linear", "virtual_tokens": None},
    )
    trainee = build_trainee(base, method, precision="fp32", seed=0)
    trainee = replace(trainee, fused=attach(trainee.peft, precision="fp32"))
    counts = trainee.fused.counts
    assert (counts["linear"], counts["gated"], counts["norm"]) == KINDS[kind]
    difference = compare_fused(trainee, make_row(0, [150]))
    assert difference.loss <= 1e-6
    assert difference.gradient <= 1e-5


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"variant": "dora"}], ids=str)
def test_what_it_is_not_made_for_stays_plain(
    make_trainee: MakeTrainee, make_row: MakeRow, options: dict[str, Any]
) -> None:
    ours, theirs = fused(make_trainee, **options), plain(make_trainee, **options)
    linear = ours.fused.modules["linear"][0][0]
    x = torch.randn(1, 4, linear.in_features)
    torch.manual_seed(0)
    got = linear(x)
    torch.manual_seed(0)
    with ours.fused.off():
        assert torch.equal(got, linear(x))
    batch = batch_of([make_row(0, [6, 4])], "rows")
    torch.manual_seed(0)
    one = ours.losses(batch).loss.item()
    torch.manual_seed(0)
    assert one == pytest.approx(theirs.losses(batch).loss.item(), rel=1e-5)


def test_a_switched_off_adapter_is_the_base(make_trainee: MakeTrainee, make_row: MakeRow) -> None:
    trainee = fused(make_trainee)
    for name, parameter in trainee.parameters.items():
        if "lora_B" in name:
            parameter.data += 1.0
    batch = batch_of([make_row(0, [6])], "rows")
    with torch.no_grad():
        adapted = trainee.hidden(batch)
        with trainee.peft.disable_adapter():
            bare = trainee.hidden(batch)
        fresh = fused(make_trainee).hidden(batch)
    assert torch.allclose(bare, fresh, atol=1e-6)
    assert not torch.allclose(adapted, fresh, atol=1e-2)


class LookalikeRMSNorm(nn.Module):
    """Gemma's: 1 + weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.5), requires_grad=False)
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (4,), 1 + self.weight, self.eps)


def test_a_module_that_computes_something_else_keeps_its_own_forward() -> None:
    module = LookalikeRMSNorm()
    assert attaching._is_norm(module)
    assert not attaching._agrees(module, attaching._norm(module), module.weight)
    module.forward = lambda x: functional.rms_norm(x, (4,), module.weight, module.eps)  # type: ignore[method-assign]
    assert attaching._agrees(module, attaching._norm(module), module.weight)


def test_another_activation_keeps_the_mlp(make_trainee: MakeTrainee) -> None:
    trainee = make_trainee(targets="all-linear")
    for block in trainee.peft.get_base_model().model.layers:
        block.mlp.act_fn = nn.GELU()
    assert attach(trainee.peft, precision="fp32").counts["gated"] == 0


def planted_norm(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    """Forgets that the vector's length depends on each entry."""
    _, weight, factor = ctx.saved_tensors
    return gradient * weight * factor, None, None


def planted_lora(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
    """The gradient of A without LoRA's scale."""
    dx, da, db, _ = right_lora(ctx, gradient)
    return dx, da / ctx.frozen.scale, db, None


def planted_attention(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    """Swaps the gradients of keys and values."""
    dq, dk, dv, _ = right_attention(ctx, gradient)
    return dq, dv, dk, None


def planted_head(ctx: Any, above: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
    """Does not pass on the gradient above it."""
    return ctx.saved_tensors[0] * (2 * above), None, None


right_lora, right_attention = LoraLinear.backward, CausalAttention.backward


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("part", "planted"),
    [
        (RmsNorm, planted_norm),
        (LoraLinear, planted_lora),
        (CausalAttention, planted_attention),
        (HeadLoss, planted_head),
    ],
)
def test_the_proof_before_training_sees_a_wrong_backward(  # noqa: PLR0917
    make_trainee: MakeTrainee,
    make_row: MakeRow,
    monkeypatch: pytest.MonkeyPatch,
    part: Any,
    planted: Any,
    precision: str,
) -> None:
    trainee = fused(make_trainee, precision=precision)
    check_fused(compare_fused(trainee, make_row(0, [40])), precision)
    monkeypatch.setattr(part, "backward", staticmethod(planted))
    with pytest.raises(InputError) as caught:
        check_fused(compare_fused(trainee, make_row(0, [40])), precision)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("fused-differs", "kernels")
    assert finding.fix == "kernels=plain; please report the model"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_proof_does_not_blame_the_fused_parts_for_what_the_plain_ones_do(
    make_trainee: MakeTrainee, make_row: MakeRow, value: float
) -> None:
    trainee = fused(make_trainee)
    name, parameter = next(iter(trainee.parameters.items()))
    with torch.no_grad():
        parameter.fill_(value)
    with pytest.raises(InputError) as caught:
        check_fused(compare_fused(trainee, make_row(0, [40])), "fp32")
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("non-finite", "base_model")
    assert "lora_A" in name


def test_the_proof_blames_the_fused_parts_for_a_nan_of_their_own(
    make_trainee: MakeTrainee, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And names a tensor whose difference is NaN, which max() would pass over."""
    trainee = fused(make_trainee)
    last = list(trainee.parameters)[-1]
    right = check.gradients_of

    def planted(which: Trainee, batch: Batch) -> tuple[float, dict[str, Tensor]]:
        loss, found = right(which, batch)
        if which is trainee:
            found[last] = found[last] * float("nan")
        return loss, found

    monkeypatch.setattr(check, "gradients_of", planted)
    with pytest.raises(InputError) as caught:
        check_fused(compare_fused(trainee, make_row(0, [40])), "fp32")
    (finding,) = caught.value.findings
    assert (finding.rule, last in finding.message) == ("fused-differs", True)


@pytest.mark.parametrize("lengths", [[1, 4], [1, 1, 2], [2], [4, 1]])
def test_the_proof_takes_a_document_that_has_a_loss(
    make_trainee: MakeTrainee, make_row: MakeRow, lengths: list[int]
) -> None:
    """One token has no target: a difference relative to its loss would divide by zero."""
    trainee, row = fused(make_trainee), make_row(0, lengths)
    found = check.first_document(row)
    start = sum(lengths[: (place := next(i for i, n in enumerate(lengths) if n > 1))])
    assert found.input_ids == row.input_ids[start : start + lengths[place]]
    assert found.example_ids == [f"e0.{place}"]
    check_fused(compare_fused(trainee, row), "fp32")
    assert row_to_prove([make_row(1, [1]), make_row(2, [1, 1]), row]) is row


def test_the_proof_leaves_everything_as_it_was(
    make_trainee: MakeTrainee, make_row: MakeRow
) -> None:
    trainee = fused(make_trainee)
    before = {name: p.detach().clone() for name, p in trainee.parameters.items()}
    state = torch.get_rng_state()
    compare_fused(trainee, make_row(0, [200]))
    assert check.TOKENS < 200
    assert torch.equal(state, torch.get_rng_state())
    assert trainee.peft.training
    assert trainee.peft.get_base_model().config._attn_implementation == FUSED
    for name, parameter in trainee.parameters.items():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_of_full_fine_tuning_attention_alone_is_fused_and_proven(
    make_full: MakeTrainee, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """The other parts know frozen weights only; a wrong backward of this one is seen too."""
    trainee = make_full(precision=precision)
    attend_as(trainee.peft.get_base_model(), "documents", [], "fused")
    trainee = replace(trainee, fused=attach(trainee.peft, precision=precision))
    parts = dict.fromkeys(("linear", "gated", "norm", "head"), 0)
    assert check.fused_counts(trainee) == {**parts, "attention": 1}
    row = make_row(0, [40])
    check_fused(compare_fused(trainee, row), precision)
    monkeypatch.setattr(CausalAttention, "backward", staticmethod(planted_attention))
    with pytest.raises(InputError, match="fused parts give other values"):
        check_fused(compare_fused(trainee, row), precision)
    attend_as(trainee.peft.get_base_model(), "documents", [], "plain")
    assert check.fused_counts(trainee) == {**parts, "attention": 0}


@pytest.mark.parametrize("kind", [LoraLinear, GatedLinear])
def test_a_model_may_add_to_the_result_in_place(kind: Any) -> None:
    """Llama 4 adds its experts' output to that of the shared one; a view would be an error."""
    generator = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, 3, 4, generator=generator), torch.randn(3, 5, generator=generator)
    weight = torch.randn(5, 4, generator=generator)
    results = []
    for in_place in (True, False):
        a = torch.ones(2, 4, requires_grad=True)
        b = torch.ones(5, 2, requires_grad=True)
        states = [x[0], x[1]] if kind is GatedLinear else [x[0]]
        y = kind.apply(*states, a, b, Frozen(weight, None, 2.0))
        y = y.add_(other) if in_place else y + other
        y.square().sum().backward()
        assert a.grad is not None
        assert b.grad is not None
        results.append((y.detach(), a.grad, b.grad))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)
