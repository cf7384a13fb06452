"""Attention by document: equal to the mask, on a real model, with windows; what it refuses."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import Layout, Method
from hashtune.training import attention
from hashtune.training.attention import check_probe, probe_row, run_probe
from hashtune.training.batches import Batch, Lengths, collate, document_mask
from hashtune.training.documents import DOCUMENTS, attend, attend_as
from hashtune.training.layouts import batch_of
from hashtune.training.model import Trainee, build_trainee

MakeRow = Callable[[int, list[int]], Row]
LAYOUTS: list[Layout] = ["rows", "length_grouped", "padding_free"]


@pytest.fixture(scope="module")
def trainee(make_trainee: Callable[..., Trainee]) -> Trainee:
    """A model that attends by document."""
    trainee = make_trainee()
    attend_as(trainee.peft.get_base_model(), "documents", [])
    return trainee


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_layers_that_drop_the_documents_are_refused(make_row: MakeRow, kernels: Any) -> None:
    """StableLM's decoder layer of transformers 5.24 gives its attention no further arguments."""
    from transformers import StableLmConfig, StableLmForCausalLM

    config = StableLmConfig(
        **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 600},
        **{"num_attention_heads": 2, "num_key_value_heads": 1},
    )
    base = StableLmForCausalLM(config)
    attend_as(base, "documents", [], kernels)
    method = Method(
        **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
        **{"targets": ["q_proj"], "virtual_tokens": None},
    )
    trainee = build_trainee(base, method, precision="fp32", seed=0)
    with pytest.raises(InputError, match="do not pass on which documents") as caught:
        trainee.hidden(collate([make_row(0, [5])]))
    assert caught.value.findings[0].fix == "batch.attention=mask"


def heads(seed: int, batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random float64 query (4 heads), key and value (2 heads)."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(batch, count, length, 8, generator=generator, dtype=torch.float64)
        for count in (4, 2, 2)
    )
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_()


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """What a mask gives, (B, T, heads, d)."""
    result = scaled_dot_product_attention(
        query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1), attn_mask=mask
    )
    return result.transpose(1, 2)


def run(tensors: tuple[Tensor, Tensor, Tensor], documents: Lengths, **options: Any) -> Tensor:
    result, weights = attend(None, *tensors, None, documents=documents, **options)
    assert weights is None
    return result


@pytest.mark.parametrize(
    "documents",
    [((3, 2), (6,)), ((1, 1, 4), (1, 5)), ((6,), (4,)), ((2,), (1, 1))],
    ids=str,
)
def test_equal_to_the_mask_with_its_gradients(documents: Lengths) -> None:
    length = max(map(sum, documents))
    real = torch.tensor([[place < sum(d) for place in range(length)] for d in documents])
    ids = torch.zeros(2, length, dtype=torch.long)
    for index, lengths in enumerate(documents):
        numbers = torch.repeat_interleave(torch.arange(len(lengths)) + 1, torch.tensor(lengths))
        ids[index, : len(numbers)] = numbers
    by_document, by_mask = heads(1, 2, length), heads(1, 2, length)
    ours = run(by_document, documents)
    theirs = masked(*by_mask, document_mask(ids))
    assert torch.allclose(ours[real], theirs[real], atol=1e-14, rtol=0)
    weights = torch.linspace(-1, 1, ours[real].numel(), dtype=torch.float64).view_as(ours[real])
    (ours[real] * weights).sum().backward()
    (theirs[real] * weights).sum().backward()
    for one, other in zip(by_document, by_mask, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=1e-14, rtol=0)


def test_padding_of_packed_rows_is_zero_and_never_nan() -> None:
    result = run(heads(2, 2, 5), ((2, 1), (5,)))
    assert torch.equal(result[0, 3:], torch.zeros(2, 4, 8, dtype=torch.float64))
    assert bool(result.isfinite().all())


def test_one_token_sees_its_own_value() -> None:
    query, key, value = heads(3, 1, 3)
    result = run((query, key, value), ((1, 1, 1),))
    assert torch.equal(result[0, :, 0], value[0, 0])
    assert torch.equal(result[0, :, 3], value[0, 1])  # query heads 2 and 3 read key head 1


@pytest.mark.parametrize("documents", [((5,),), ((3, 2),), ((5,), (4,))], ids=str)
def test_sliding_window(documents: Lengths) -> None:
    """A window of 2: a token sees itself and the one before it, in its document."""
    tensors = heads(4, len(documents), 5)
    band = torch.ones(5, 5, dtype=torch.bool).tril().triu(-1).repeat(len(documents), 1, 1, 1)
    if documents == ((3, 2),):
        band[0, 0, 3, 2] = False
    real = torch.tensor([[place < sum(d) for place in range(5)] for d in documents])
    ours = run(tensors, documents, sliding_window=2)
    assert torch.allclose(ours[real], masked(*tensors, band)[real], atol=1e-14, rtol=0)
    assert torch.equal(run(tensors, documents, sliding_window=5), run(tensors, documents))


def test_dropout_drops_and_scaling_scales() -> None:
    tensors = heads(5, 1, 6)
    torch.manual_seed(0)
    dropped = run(tensors, ((4, 2),), dropout=0.5)
    torch.manual_seed(0)
    assert torch.equal(run(tensors, ((4, 2),), dropout=0.5), dropped)
    assert not torch.equal(run(tensors, ((4, 2),)), dropped)
    # scores times 0 are equal: the mean of the values seen
    flat = run(tensors, ((4, 2),), scaling=0.0)
    assert torch.allclose(flat[0, 5, 0], tensors[2][0, 0, 4:6].mean(0), atol=1e-14, rtol=0)


@pytest.mark.parametrize("name", ["softcap", "s_aux", "position_bias"])
def test_scores_of_another_formula_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"\({name}\) \[unsupported-model\]"):
        run(heads(6, 1, 2), ((2,),), **{name: 30.0})


def test_a_mask_that_would_hide_a_window_is_refused(make_row: MakeRow) -> None:
    base = SimpleNamespace(config=SimpleNamespace(sliding_window=4))
    attend_as(base, "mask", [make_row(0, [4, 2]), make_row(1, [3])])
    attend_as(base, "mask", [make_row(0, [5]), make_row(1, [9])])  # no row is packed: no mask
    with pytest.raises(InputError, match="5 tokens, and this base sees 4 at once"):
        attend_as(base, "mask", [make_row(0, [1, 2]), make_row(1, [5])])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lengths", [[5, 4], [1, 4], [4, 1], [1, 1]], ids=str)
def test_probe(trainee: Trainee, make_row: MakeRow, layout: Layout, lengths: list[int]) -> None:
    probe = run_probe(trainee, make_row(1, lengths), layout)
    check_probe(probe)
    assert probe.leak == 0.0
    assert probe.parity < 1e-5
    assert probe.control > 10 * probe.tolerance


def test_without_padding_two_rows_of_one_document_are_probed(make_row: MakeRow) -> None:
    rows = [make_row(3, [30]), make_row(5, [2])]
    assert probe_row(rows) is None
    assert probe_row(rows, "length_grouped") is None
    assert probe_row(rows[:1], "padding_free") is None
    row = probe_row(rows, "padding_free")
    assert row is not None
    assert (row.row, row.example_ids, row.lengths) == (3, ["e3.0", "e5.0"], [24, 2])
    assert row.input_ids == rows[0].input_ids[:24] + rows[1].input_ids


def test_calls_that_ignore_documents_are_caught(
    trainee: Trainee, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: one causal call over the whole row."""
    from transformers import AttentionInterface

    def whole(module: Any, *tensors: Tensor, documents: Lengths, **options: Any) -> Any:
        one = ((tensors[0].shape[2],),) * len(documents)
        return attend(module, *tensors, documents=one, **options)

    monkeypatch.setitem(AttentionInterface._global_mapping, DOCUMENTS, whole)
    probe = run_probe(trainee, make_row(1, [5, 4]), "padding_free")
    assert probe.leak > 0.1
    with pytest.raises(InputError, match="attention-leak"):
        check_probe(probe)


def test_positions_that_run_on_are_caught(
    trainee: Trainee, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: rows are joined and their positions not reset."""

    def running(rows: list[Row], layout: Layout) -> Batch:
        batch = batch_of(rows, layout)
        return replace(batch, position_ids=torch.arange(batch.tokens)[None])

    monkeypatch.setattr(attention, "batch_of", running)
    with pytest.raises(AssertionError, match="positions do not begin at 0"):
        run_probe(trainee, make_row(1, [5, 4]), "padding_free")


def test_nothing_of_row_times_row_is_built(
    trainee: Trainee, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: object, **__: object) -> None:
        raise AssertionError("a mask was built")

    monkeypatch.setattr("hashtune.training.batches.document_mask", built)
    monkeypatch.setattr("transformers.masking_utils.sdpa_mask", built)
    states = trainee.hidden(collate([make_row(1, [5, 4]), make_row(2, [3])]))
    assert states.shape[:2] == (2, 9)


def test_generation_is_that_of_sdpa(
    trainee: Trainee, make_trainee: Callable[..., Trainee], make_row: MakeRow
) -> None:
    ids = torch.tensor([[0, 0, *make_row(1, [4]).input_ids], make_row(2, [6]).input_ids])
    settings: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "max_new_tokens": 4,
        "do_sample": False,
        "pad_token_id": 0,
    }
    ours, plain = (one.peft.eval().generate(**settings) for one in (trainee, make_trainee()))
    trainee.peft.train()
    assert torch.equal(ours, plain)
