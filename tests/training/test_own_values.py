"""What the loss takes from a base against the base's own forward; each planted fault is refused."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.spec.schema import Method
from hashtune.training.documents import attend_as
from hashtune.training.model import DTYPES, Trainee, build_trainee
from hashtune.training.own import check_base
from hashtune.training.own_values import Difference, check_own, compare_own

MakeTrainee = Callable[..., Trainee]
MakeRow = Callable[[int, list[int]], Row]
Change = Callable[[Any], Any]
METHOD = Method(
    **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
    **{"targets": ["q_proj"], "virtual_tokens": None},
)


@pytest.fixture
def row(make_row: MakeRow) -> Row:
    return make_row(1, [9, 4])


def changed(trainee: Trainee, change: Change) -> Trainee:
    """Its model's own forward goes on with `change` of its output."""
    base = trainee.peft.get_base_model()
    own = base.forward
    base.forward = lambda *args, **inputs: change(own(*args, **inputs))
    return trainee


def with_logits(function: Callable[[Tensor], Tensor]) -> Change:
    def change(output: Any) -> Any:
        return SimpleNamespace(logits=function(output.logits), loss=output.loss)

    return change


def refused(trainee: Trainee, row: Row) -> Finding:
    with pytest.raises(InputError) as caught:
        check_own(compare_own(trainee, row), trainee.precision)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file) == ("unsupported-model", "params.yaml")
    assert finding.fix is not None
    return finding


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_base_that_does_no_more_passes(
    make_trainee: MakeTrainee, row: Row, precision: str
) -> None:
    trainee = make_trainee(precision=precision)
    attend_as(trainee.peft.get_base_model(), "documents", [row], "fused")
    check_own(compare_own(trainee, row), precision)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda logits: logits * 0.0625,
        lambda logits: logits / 1.03,
        lambda logits: 50.0 * torch.tanh(logits / 50.0),
        lambda logits: logits.clamp(-60.0, 60.0),
        lambda logits: logits + 0.5 * torch.arange(logits.shape[-1]),
        lambda logits: logits * float("nan"),
        lambda logits: logits[:, -1:],
    ],
    ids=["Cohere", "3 %", "cap", "clamp", "bias", "nan", "last only"],
)
def test_logits_changed_after_the_head_are_refused(
    make_trainee: MakeTrainee, row: Row, function: Callable[[Tensor], Tensor], precision: str
) -> None:
    """Random states of a wide spread: the states of this small base would not reach a cap."""
    trainee = changed(make_trainee(precision=precision), with_logits(function))
    finding = refused(trainee, row)
    assert "changes its logits after the head" in finding.message
    assert finding.field == "base_model"


def test_a_loss_with_another_term_is_refused(make_trainee: MakeTrainee, row: Row) -> None:
    def auxiliary(output: Any) -> Any:
        return SimpleNamespace(logits=output.logits, loss=output.loss + 0.01)

    finding = refused(changed(make_trainee(), auxiliary), row)
    assert "its own loss is not" in finding.message


def test_a_router_s_loss_is_refused() -> None:
    """Mixtral of transformers adds it where its configuration says output_router_logits."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 600},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 2},
    }
    row = Row(0, ["e"], [6], [3, 4, 5, 6, 7, 8], [-100] * 6)
    for extra in (False, True):
        config = AutoConfig.for_model("mixtral", output_router_logits=extra, **sizes)
        torch.manual_seed(0)
        trainee = build_trainee(
            AutoModelForCausalLM.from_config(config), METHOD, precision="fp32", seed=0
        )
        if extra:
            assert "its own loss is not" in refused(trainee, row).message
        else:
            check_own(compare_own(trainee, row), "fp32")


def test_states_scaled_before_the_head_are_refused(make_trainee: MakeTrainee, row: Row) -> None:
    """MiniCPM divides them in the forward of its causal model."""
    trainee = make_trainee()
    base = trainee.peft.get_base_model()
    head = base.lm_head
    own = base.forward

    def forward(**inputs: Any) -> Any:
        hook = head.register_forward_pre_hook(lambda _, states: (states[0] / 2,), prepend=True)
        try:
            return own(**inputs)
        finally:
            hook.remove()

    base.forward = forward
    finding = refused(trainee, row)
    assert finding.message.startswith("its states are off by 1.0e+00")


def test_a_head_that_is_not_called_is_refused(make_trainee: MakeTrainee, row: Row) -> None:
    trainee = make_trainee()
    base = trainee.peft.get_base_model()
    head = base.lm_head.forward
    base.forward = lambda **inputs: SimpleNamespace(
        logits=head(base.model(inputs["input_ids"]).last_hidden_state), loss=torch.tensor(1.0)
    )
    assert refused(trainee, row).message.startswith("its states are off by inf")


@pytest.mark.parametrize(
    "difference",
    [Difference(2e-4, 0.0, 0.0), Difference(0.0, 2e-5, 0.0), Difference(0.0, 0.0, 2e-5)],
)
def test_each_value_has_its_limit(difference: Difference) -> None:
    check_own(Difference(1e-4, 1e-5, 1e-5), "fp32")
    check_own(Difference(3e-2, 1e-5, 1e-5, int8=True), "fp32")
    with pytest.raises(InputError, match="its states are off by"):
        check_own(Difference(4e-2, 1e-5, 1e-5, int8=True), "fp32")
    with pytest.raises(InputError):
        check_own(difference, "fp32")


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_virtual_tokens_are_no_part_of_the_base(
    make_soft: Callable[..., Trainee], row: Row, kind: str
) -> None:
    trainee = make_soft(kind)
    check_own(compare_own(trainee, row), "fp32")


def test_nothing_is_changed(make_trainee: MakeTrainee, row: Row) -> None:
    trainee = make_trainee(dropout=0.5)
    base = trainee.peft.get_base_model()
    attend_as(base, "documents", [row])
    before = {n: p.clone() for n, p in trainee.peft.named_parameters()}
    modes = [module.training for module in trainee.peft.modules()]
    torch.manual_seed(5)
    random = torch.get_rng_state()
    check_base(trainee, [row], packed=True)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in trainee.peft.modules()] == modes
    assert all(torch.equal(before[n], p) for n, p in trainee.peft.named_parameters())
    assert all(p.grad is None for p in trainee.peft.parameters())
    assert base.config._attn_implementation == "hashtune_documents"
    assert not base.lm_head._forward_pre_hooks


def test_full_fine_tuning_loads_no_second_base(make_full: Callable[..., Trainee], row: Row) -> None:
    trainee = make_full()
    check_base(trainee, [row], packed=True)
    assert trainee.peft._pinned == {}


@pytest.mark.parametrize("stored", ["nf4", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_quantised_base_passes(
    make_base: Callable[..., Any], row: Row, stored: Any, dtype: torch.dtype
) -> None:
    method = METHOD.model_copy(update={"type": "qlora"})
    precision = "fp32" if dtype == torch.float32 else "bf16"
    base = make_base(dtype, stored)
    attend_as(base, "documents", [row], "fused")
    trainee = build_trainee(base, method, precision=precision, seed=0)
    check_base(trainee, [row], packed=True)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_trained_rows_of_added_tokens_pass(
    make_base: Callable[..., Any], row: Row, precision: str
) -> None:
    base = make_base(DTYPES[precision])
    trainee = build_trainee(base, METHOD, precision=precision, seed=0, tokens=[5, 500])
    check_base(trainee, [row], packed=True)


def test_full_fine_tuning_under_bf16_passes(make_full: Callable[..., Trainee], row: Row) -> None:
    check_base(make_full(precision="bf16"), [row], packed=True)


def test_states_that_are_not_finite_are_for_the_step_to_tell(
    make_trainee: MakeTrainee, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainee.hidden
    monkeypatch.setattr(Trainee, "hidden", lambda own, batch: real(own, batch) * torch.nan)
    trainee = make_trainee()
    check_own(compare_own(trainee, row), "fp32")
