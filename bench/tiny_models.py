"""Each causal language model of transformers, tiny and random, and what a plain loop makes of it.

bench/families.py compares training with them.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from hashtune.errors import InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.store.loader import not_loaded

SEED, NOISE = 7, 0.05
VOCABULARY, LONGEST = 96, 24
# by the names that configurations have for one thing
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "moe_intermediate_size"), 48),
    **dict.fromkeys(("shared_expert_intermediate_size", "ffn_hidden_size"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts", "num_local_experts"), 2),
    **dict.fromkeys(("n_routed_experts", "num_experts_per_tok", "moe_topk"), 2),
    **{"vocab_size": VOCABULARY, "head_dim": 8, "max_position_embeddings": 64},
    **dict.fromkeys(("dropout", "attention_dropout", "residual_dropout", "resid_dropout"), 0.0),
    **dict.fromkeys(("hidden_dropout", "activation_dropout", "embd_pdrop", "resid_pdrop"), 0.0),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "v_head_dim", "qk_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim"), 4),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **{"mamba_n_heads": 4, "mamba_d_head": 16},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
# tiny models of these need a field more
MORE: dict[str, dict[str, Any]] = {
    **{
        name: {"num_key_value_heads": 4, "head_dim": 4}
        for name in ("axk1", "axk2", "youtu", "deepseek_v3", "deepseek_v32", "glm_moe_dsa")
    },
    "dots1": {"n_shared_experts": 1},
    "bailing_hybrid": {"first_k_dense_replace": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "falcon_h1": {"mamba_d_ssm": 64},
    "minicpm3": {"num_key_value_heads": 4},
    "zaya": {"num_experts_per_tok": 1},
}
LARGEST = 6_000_000  # parameters of a model that is tried
NO_MODEL = (
    *(AttributeError, AssertionError, ImportError, KeyError, RuntimeError, TypeError, ValueError),
    StrictDataclassError,
)


def model_types() -> list[str]:
    """All model types with a causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def config_of(model_type: str, **more: Any) -> Any:
    """A tiny configuration: the fields of SIZES that the type has."""
    from transformers import AutoConfig

    known = type(AutoConfig.for_model(model_type))().to_dict()
    fields = {name: value for name, value in SIZES.items() if name in known}
    return AutoConfig.for_model(model_type, **(fields | MORE.get(model_type, {}) | more))


def base_of(config: Any) -> Any:
    """The random base of the configuration, always the same, as load_base would load it."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    try:
        base = AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32
        )
    except ValueError as error:
        raise not_loaded(error) from error
    for parameter in base.parameters():  # some begin at zero
        parameter.data += torch.randn(parameter.shape) * NOISE
    return base.eval()


def row_of(number: int, lengths: Sequence[int]) -> Row:
    """Tokens from 3 on; the first label of each document is -100."""
    total = sum(lengths)
    ids = [
        3 + (37 * number + 11 * place + place * place) % (VOCABULARY - 3) for place in range(total)
    ]
    labels, start = list(ids), 0
    for length in lengths:
        labels[start] = IGNORE_INDEX
        start += length
    return Row(number, [f"e{number}.{i}" for i in range(len(lengths))], list(lengths), ids, labels)


ROWS = [row_of(0, [LONGEST, 7]), row_of(1, [5, 9, 3])]


def plain_loss(model: Any, rows: Sequence[Row]) -> Tensor:
    """The mean over trained tokens, from the model's own loss of each document alone."""
    total, tokens = torch.zeros(()), 0
    for row in rows:
        for part in torch.tensor(row.input_ids).split(row.lengths):
            loss = model(input_ids=part[None], labels=part[None], use_cache=False).loss
            total, tokens = total + loss * (len(part) - 1), tokens + len(part) - 1
    return total / tokens


def tiny(model_type: str) -> Any | None:
    """Its tiny configuration, or None where these sizes make no model that runs, or a large one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = config_of(model_type)
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in base_of(config).parameters())
            if size <= LARGEST:
                plain_loss(base_of(config), ROWS)
        except InputError as error:
            return config if "attention" in error.findings[0].message else None
        except NO_MODEL:
            return None
    return config if size <= LARGEST else None
