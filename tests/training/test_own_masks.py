"""The masks that layers have of their own: seen, and refused where training would lose them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import Attention, Method
from hashtune.training.batches import collate
from hashtune.training.documents import attend_as
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.own import check_base
from hashtune.training.own_masks import (
    TOKENS,
    Seen,
    check_masks,
    local_sizes,
    read_masks,
    record,
)

MakeRow = Callable[[int, list[int]], Row]
SIZES = {
    **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 600},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0},
}
CHUNK = {
    **{"attention_chunk_size": 8, "intermediate_size_mlp": 16, "num_local_experts": 2},
    "layer_types": ["chunked_attention", "full_attention"],
}
WINDOW = {"sliding_window": 8}
CASES: dict[str, dict[str, Any]] = {
    "llama4_text": CHUNK,
    "mistral": WINDOW,
    "phimoe": {**WINDOW, "num_local_experts": 2},
    "qwen2_moe": {
        **{"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2},
        **{"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
        "shared_expert_intermediate_size": 16,
    },
    "llama": {},
}


def trainee_of(model_type: str, attention: Attention, rows: list[Row]) -> Trainee:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type, **(SIZES | CASES[model_type]))
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    attend_as(base, attention, rows)
    method = Method(
        **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
        **{"targets": ["q_proj", "v_proj"], "virtual_tokens": None},
    )
    return build_trainee(base, method, precision="fp32", seed=0)


def refusal(trainee: Trainee, rows: list[Row], *, packed: bool) -> str | None:
    try:
        check_base(trainee, rows, packed=packed)
    except InputError as error:
        (finding,) = error.findings
        assert (finding.rule, finding.field) == ("local-attention", "batch.attention")
        assert finding.fix is not None
        return finding.fix
    return None


@pytest.mark.parametrize("model_type", ["llama4_text", "phimoe", "qwen2_moe"])
def test_what_attention_by_document_does_not_know_is_refused(
    model_type: str, make_row: MakeRow
) -> None:
    """Chunks, and windows of layers that tell their attention nothing of them."""
    rows = [make_row(0, [3]), make_row(1, [9, 2])]
    fix = refusal(trainee_of(model_type, "documents", rows), rows, packed=True)
    assert fix == "batch.attention=mask with data.packing=false, or shorter documents"


@pytest.mark.parametrize("model_type", ["llama4_text", "phimoe", "qwen2_moe"])
def test_planted_without_the_check_the_states_are_others(
    model_type: str, make_row: MakeRow
) -> None:
    """What the check is for: the last token sees what its layer hides from it."""
    rows = [make_row(0, [9])]
    documents, own = (trainee_of(model_type, kind, rows) for kind in ("documents", "mask"))
    with torch.no_grad():
        one, other = (each.hidden(collate(rows)) for each in (documents, own))
    assert torch.allclose(one[:, :8], other[:, :8], atol=1e-5)
    assert not torch.allclose(one[:, 8], other[:, 8], atol=1e-3)


@pytest.mark.parametrize("model_type", CASES)
def test_plain_attention_stays_usable(model_type: str, make_row: MakeRow) -> None:
    rows = [make_row(0, [9]), make_row(1, [12])]
    assert refusal(trainee_of(model_type, "mask", rows), rows, packed=False) is None


@pytest.mark.parametrize("model_type", CASES)
def test_documents_within_the_reach_pass(model_type: str, make_row: MakeRow) -> None:
    """A window of 8 and 7 tokens: transformers makes a window's mask from 8 tokens on."""
    rows = [make_row(0, [7, 6]), make_row(1, [8, 5])]
    for attention in ("documents", "mask"):
        assert refusal(trainee_of(model_type, attention, rows), rows, packed=True) is None


@pytest.mark.parametrize("model_type", ["mistral", "llama"])
def test_a_window_that_a_layer_passes_on_is_kept(model_type: str, make_row: MakeRow) -> None:
    rows = [make_row(0, [12, 9])]
    assert refusal(trainee_of(model_type, "documents", rows), rows, packed=True) is None


def test_a_mask_of_documents_hides_no_chunk(make_row: MakeRow) -> None:
    rows = [make_row(0, [9, 2])]
    fix = refusal(trainee_of("llama4_text", "mask", rows), rows, packed=True)
    assert fix == "batch.attention=mask with data.packing=false, or shorter documents"


def test_the_beginning_of_the_longest_document_is_read(make_row: MakeRow) -> None:
    """One token more than the reach that it exceeds, or a few."""
    rows = [make_row(0, [5, 40, 2]), make_row(1, [39])]
    trainee = trainee_of("mistral", "documents", rows)
    assert read_masks(trainee, rows) == Seen(TOKENS, 2, local=2, other=0, formulas=())
    base: Any = trainee.peft.get_base_model()
    seen: list[Tensor] = []
    hook = base.model.embed_tokens.register_forward_pre_hook(lambda _, ids: seen.append(ids[0]))
    base.config.sliding_window = 36
    read_masks(trainee, rows)
    hook.remove()
    assert seen[0].tolist() == [rows[0].input_ids[5 : 5 + 37]]


def test_sizes_are_numbers_that_may_be_a_reach() -> None:
    config = {
        **{"sliding_window": 4096, "attention_chunk_size": 8192, "local_attention": 128},
        **{"use_sliding_window": True, "window": None, "hidden_size": 16, "chunk_size": 0},
        "rope_window": 0.5,
    }
    assert local_sizes(config) == [128, 4096, 8192]


def test_changed_scores_are_refused_in_each_way_of_attention() -> None:
    seen = Seen(8, 2, local=0, other=0, formulas=("softcap",))
    for documents in (True, False):
        with pytest.raises(InputError, match="change their scores \\(softcap\\)"):
            check_masks(seen, documents=documents, packed=False)


class Layer:
    """An attention layer's module."""

    def __init__(self, *, causal: bool = True) -> None:
        self.is_causal = causal


@pytest.mark.parametrize(
    ("mask", "window", "expected"),
    [
        ("none", None, (True, True)),
        ("causal", None, (True, True)),
        ("band", 2, (False, True)),
        ("band", None, (False, False)),
        ("band", 3, (False, False)),
        ("causal", 2, (True, False)),  # we would hide what the layer shows
        ("all", None, (False, False)),
        ("float", None, (True, True)),
        ("bias", None, (False, False)),
    ],
)
def test_what_a_mask_shows(mask: str, window: int | None, expected: tuple[bool, bool]) -> None:
    whole = torch.ones(5, 5, dtype=torch.bool).tril()
    masks: dict[str, Tensor | None] = {
        "none": None,
        "causal": whole[None, None],
        "band": (whole & whole.triu(-1))[None, None],
        "all": torch.ones(1, 1, 5, 5, dtype=torch.bool),
        "float": torch.zeros(5, 5).masked_fill(~whole, -torch.inf)[None, None],
        "bias": torch.full((5, 5), -0.5).masked_fill(~whole, -torch.inf)[None, None],
    }
    found: list[Any] = []
    query, value = torch.ones(1, 4, 5, 8), torch.ones(1, 2, 5, 6)
    result, weights = record(
        *(found, Layer(), query, torch.ones(1, 2, 5, 8), value, masks[mask]), sliding_window=window
    )
    assert (found[0].whole, found[0].known) == expected
    assert (result.shape, weights) == ((1, 5, 4, 6), None)


def test_a_layer_that_is_not_causal_shows_all() -> None:
    found: list[Any] = []
    tensor = torch.ones(1, 2, 3, 4)
    record(found, Layer(causal=False), tensor, tensor, tensor, None)
    assert (found[0].whole, found[0].known) == (False, False)
