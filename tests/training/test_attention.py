"""The probe of the document mask: it passes on a real model and sees every planted leak."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.errors import InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Method
from hashtune.training.attention import (
    PROBE_TOKENS,
    TOLERANCE,
    Probe,
    attention_backend,
    check_probe,
    probe_row,
    run_probe,
)
from hashtune.training.batches import Batch, collate
from hashtune.training.documents import FUSED, attend_as
from hashtune.training.model import DTYPES, Trainee, build_trainee
from hashtune.training.own_values import INT8_STATES

MakeRow = Callable[[int, list[int]], Row]


class Maskless(Trainee):
    """Planted leak: a backend that ignores the document mask."""

    def hidden(self, batch: Batch) -> Tensor:
        whole = torch.arange(batch.tokens)[None]
        return super().hidden(replace(batch, lengths=((batch.tokens,),), position_ids=whole))


class Blind(Trainee):
    """Planted fault: the probe looks at states that depend on nothing."""

    def hidden(self, batch: Batch) -> Tensor:
        return torch.ones_like(super().hidden(batch))


@pytest.fixture(scope="module")
def trainee(make_trainee: Callable[..., Trainee]) -> Trainee:
    return make_trainee()


def as_kind(kind: type[Trainee], trainee: Trainee) -> Trainee:
    return kind(trainee.peft, trainee.parameters, trainee.precision)


def test_a_real_model_keeps_documents_apart(trainee: Trainee, make_row: MakeRow) -> None:
    probe = run_probe(trainee, make_row(1, [5, 4]))
    check_probe(probe)
    assert probe.leak == 0.0  # a masked key adds exact zeros
    assert probe.parity < 1e-5
    assert probe.control > 10 * probe.tolerance
    assert probe.tolerance == 1e-4


def test_without_a_mask_transformers_reads_documents_from_position_ids(
    trainee: Trainee, make_row: MakeRow
) -> None:
    """Why the positions of the control run on: without a mask alone nothing would leak."""
    batch = collate([make_row(1, [3, 2])])
    with torch.no_grad():
        masked, bare = trainee.hidden(batch), trainee.hidden(replace(batch, lengths=((5,),)))
    assert torch.allclose(masked, bare, atol=1e-5)


@pytest.mark.parametrize("lengths", [[1, 4], [4, 1], [1, 1]])
def test_one_token_documents(trainee: Trainee, make_row: MakeRow, lengths: list[int]) -> None:
    check_probe(run_probe(trainee, make_row(2, lengths)))


def test_bf16_model_passes_within_its_own_tolerance(
    make_trainee: Callable[..., Trainee], make_row: MakeRow
) -> None:
    probe = run_probe(make_trainee(precision="bf16"), make_row(1, [5, 4]))
    check_probe(probe)
    assert probe.leak == 0.0
    assert probe.tolerance == TOLERANCE["bf16"] == 3e-2


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_an_int8_base_rounds_more_than_its_precision(
    make_base: Callable[..., Any], make_row: MakeRow, precision: Any
) -> None:
    """What enters a layer is rounded to 1/127, so that a last digit may move a state by that."""
    method = Method(
        type="qlora",
        variant="lora",
        r=2,
        alpha=4.0,
        dropout=0.0,
        targets="all-linear",
        virtual_tokens=None,
    )
    trainee = build_trainee(
        make_base(DTYPES[precision], "int8"), method, precision=precision, seed=7
    )
    probe = run_probe(trainee, make_row(1, [5, 4]))
    assert probe.tolerance == INT8_STATES == 3e-2
    assert probe.control > 3 * probe.tolerance
    check_probe(probe)


def test_a_leak_is_refused(trainee: Trainee, make_row: MakeRow) -> None:
    probe = run_probe(as_kind(Maskless, trainee), make_row(1, [5, 4]))
    assert probe.leak > 0.1
    with pytest.raises(InputError, match="packed documents see each other") as caught:
        check_probe(probe)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("attention-leak", "data.packing")
    assert finding.message.startswith("attention backend 'sdpa' leaks, packed documents see each")


def test_the_backend_named_is_the_one_the_layers_call(
    make_trainee: Callable[..., Trainee], make_row: MakeRow
) -> None:
    """Planted: the model's own configuration still says sdpa, one layer has another one."""
    trainee = make_trainee()
    base = trainee.peft.get_base_model()
    assert attention_backend(trainee) == "sdpa"
    attend_as(base, "documents", [], "fused")
    assert run_probe(trainee, make_row(1, [5, 4])).backend == FUSED
    base.set_attn_implementation("sdpa")
    layer = base.model.layers[1].self_attn
    layer.config = copy.deepcopy(layer.config)
    layer.config._attn_implementation = "eager"
    assert base.config._attn_implementation == "sdpa"
    assert attention_backend(trainee) == "eager, sdpa"


@pytest.mark.parametrize("only", ["leak", "parity", "control"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_states_that_are_not_finite_prove_nothing(only: str, value: float) -> None:
    """NaN is neither above nor below a tolerance: it would pass as proven."""
    sound = {"leak": 0.0, "parity": 0.0, "control": 0.5}
    with pytest.raises(InputError) as caught:
        check_probe(Probe(**{**sound, only: value}, tolerance=1e-4, backend="sdpa"))
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("non-finite", "base_model")


def test_positions_that_run_on_are_caught_by_parity_alone(
    trainee: Trainee, make_row: MakeRow
) -> None:
    class Shifted(Trainee):
        """B in the row gets stretched positions, B alone gets the right ones."""

        def hidden(self, batch: Batch) -> Tensor:
            if batch.mask is None:
                return super().hidden(batch)
            stretched = torch.arange(batch.input_ids.shape[1]).expand_as(batch.input_ids) ** 2
            return super().hidden(replace(batch, position_ids=stretched))

    probe = run_probe(as_kind(Shifted, trainee), make_row(1, [5, 4]))
    assert probe.leak == 0.0
    assert probe.parity > probe.tolerance
    with pytest.raises(InputError, match="attention-leak"):
        check_probe(probe)


def test_a_probe_that_sees_nothing_is_refused(trainee: Trainee, make_row: MakeRow) -> None:
    probe = run_probe(as_kind(Blind, trainee), make_row(1, [5, 4]))
    assert (probe.leak, probe.parity, probe.control) == (0.0, 0.0, 0.0)
    with pytest.raises(InputError) as caught:
        check_probe(probe)
    assert [finding.rule for finding in caught.value.findings] == ["blind-probe"]


@pytest.mark.parametrize(
    ("probe", "rule"),
    [
        (
            Probe(leak=2e-4, parity=0.0, control=0.5, tolerance=1e-4, backend="sdpa"),
            "attention-leak",
        ),
        (
            Probe(leak=0.0, parity=2e-4, control=0.5, tolerance=1e-4, backend="sdpa"),
            "attention-leak",
        ),
        (Probe(leak=0.0, parity=0.0, control=1e-4, tolerance=1e-4, backend="sdpa"), "blind-probe"),
    ],
)
def test_limits(probe: Probe, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        check_probe(probe)
    assert caught.value.findings[0].rule == rule


def test_the_probe_leaves_weights_rng_and_mode(
    make_trainee: Callable[..., Trainee], make_row: MakeRow
) -> None:
    trainee = make_trainee(dropout=0.5)
    state = torch.get_rng_state()
    before = {name: tensor.clone() for name, tensor in trainee.parameters.items()}
    run_probe(trainee, make_row(1, [5, 4]))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in trainee.parameters.items())
    assert trainee.peft.training


def test_probe_row_takes_two_short_documents_of_the_first_packed_row(make_row: MakeRow) -> None:
    long = make_row(4, [30, 26, 2])
    row = probe_row([make_row(0, [9]), long, make_row(5, [2, 2])])
    assert row is not None
    assert (row.row, row.example_ids, row.lengths) == (4, ["e4.0", "e4.1"], [24, 24])
    assert PROBE_TOKENS == 24
    assert row.input_ids == long.input_ids[:24] + long.input_ids[30:54]
    assert row.labels == [IGNORE_INDEX] * 48


def test_no_packed_row_no_probe(make_row: MakeRow) -> None:
    assert probe_row([make_row(0, [9]), make_row(1, [3])]) is None
