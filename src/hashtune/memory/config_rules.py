"""What no decoder's config.json can say: sizes that are no counts, that no model comes near, heads
and experts that do not divide. Told before anything is computed or built from it.

    limits    an order of magnitude above the largest published decoder's: 16,384 wide with 126
              blocks (Llama 3.1 405B), 262,144 words (Gemma 3), 10,485,760 positions (Llama 4)
    heads     without head_dim each has its share of hidden_size; key and value heads serve equal
              groups of query heads (Ainslie et al. 2023, arXiv 2305.13245, section 2.2); rotary
              positions turn a head's elements in pairs (Su et al. 2021, arXiv 2104.09864, 3.2)
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hashtune.errors import Finding, nearest
from hashtune.memory.families import FAMILIES
from hashtune.memory.family_shapes import ALIASES, common_names

Config = Mapping[str, Any]
CONFIG_FILE = "config.json"
NEEDED = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "vocab_size"),
)
LIMITS = {
    "hidden_size": 1 << 18,
    "num_hidden_layers": 2_000,
    "num_attention_heads": 1 << 13,
    "num_key_value_heads": 1 << 13,
    "head_dim": 1 << 13,
    "intermediate_size": 1 << 21,
    "vocab_size": 1 << 23,
    "max_position_embeddings": 1 << 27,
    "sliding_window": 1 << 27,
    "num_kv_heads": 1 << 13,
}
EXPERT_LIMITS = {
    "num_experts": 1 << 14,
    "num_local_experts": 1 << 14,
    "num_experts_per_tok": 1 << 14,
    "moe_intermediate_size": 1 << 21,
    "decoder_sparse_step": 2_000,
    "shared_expert_intermediate_size": 1 << 21,
}
MAY_BE_0 = ("shared_expert_intermediate_size",)
# Names of the same in model types without a family, which transformers would build first
OTHER_NAMES = {
    **{"n_embd": "hidden_size", "d_model": "hidden_size", "n_layer": "num_hidden_layers"},
    **{"n_layers": "num_hidden_layers", "num_layers": "num_hidden_layers"},
    **{"n_head": "num_attention_heads", "n_heads": "num_attention_heads"},
    **{"n_positions": "max_position_embeddings", "n_inner": "intermediate_size"},
    **{"ffn_dim": "intermediate_size", "d_ff": "intermediate_size"},
    **{"n_routed_experts": "num_experts"},
}
FLAGS = (
    *("tie_word_embeddings", "attention_bias", "mlp_bias", "qkv_bias", "use_qkv_bias", "bias"),
    *("use_sliding_window", "qk_layernorm", "use_parallel_residual", "alibi", "multi_query"),
    *("parallel_attn", "new_decoder_architecture"),
)
# Keys of transformers 5.24's ACT2CLS; a test compares
ACTIVATIONS = (
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python"),
    *("gelu_python_tanh", "gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear"),
    *("mish", "prelu", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu"),
    *("sqrtsoftplus", "swish", "tanh", "xielu"),
)


def config_findings(config: Config, *, file: str = CONFIG_FILE) -> list[Finding]:
    """All that is wrong with it. Of a model type without a family, what is no count or too
    large under the usual names, and groups of heads; transformers judges the rest."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        message = "is missing" if model_type is None else f"must be a name, is {model_type!r}"
        fix = "the architecture's name, as transformers writes it (llama, qwen3, ...)"
        found = [Finding("config-field", message, field="model_type", fix=fix)]
        return [_in(file, finding) for finding in (*found, *_missing(config))]
    if model_type not in FAMILIES:
        nested = config.get("text_config")
        parts = [config, nested] if isinstance(nested, Mapping) else [config]
        return [_in(file, finding) for part in parts for finding in _usual_names(part)]
    known = common_names(config)
    names = {name: alias for name, alias in _aliases(config).items() if alias in config}
    found = [*_missing(known), *_sizes(known), *_flags(known)]
    found = found or [*_heads(known), *_experts(known), *_activation(known)]
    return [_in(file, finding, names) for finding in found]


def _in(file: str, finding: Finding, names: Mapping[str, str] | None = None) -> Finding:
    """The finding with the file and the field's own name there."""
    field = (names or {}).get(str(finding.field), finding.field)
    return Finding(finding.rule, finding.message, file=file, field=field, fix=finding.fix)


def _aliases(config: Config) -> Mapping[str, str]:
    return ALIASES.get(str(config.get("model_type")), {})


def _missing(known: Config) -> Iterator[Finding]:
    for key in NEEDED:
        if key not in known:
            fix = "the model's own config.json has it"
            yield Finding("config-field", "is missing", field=key, fix=fix)


def _sizes(known: Config) -> Iterator[Finding]:
    """What is no whole number above 0 (true and false included), or above its limit."""
    sparse = FAMILIES[str(known["model_type"])].sparse
    for key, most in (LIMITS | (EXPERT_LIMITS if sparse else {})).items():
        least = 0 if key in MAY_BE_0 else 1
        value = known.get(key, least)
        if type(value) is not int or value < least:
            yield _no_count(key, value, least, most)
        elif value > most:
            yield _above(key, value, most)


def _above(field: str, value: int, most: int) -> Finding:
    shown = f"{value:,}" if value < 10**15 else f"{value:.0e}" if value < 10**300 else "endless"
    fix = f"a whole number up to {most:,}"
    return Finding("config-size", f"is {shown}, more than any model has", field=field, fix=fix)


def _usual_names(config: Config) -> Iterator[Finding]:
    """A size may be a list there, one for each block; 0 where there are no experts or windows."""
    limits = LIMITS | EXPERT_LIMITS
    limits |= {name: limits[same] for name, same in OTHER_NAMES.items()}
    for key, most in limits.items():
        value = config.get(key)
        least = 0 if key in EXPERT_LIMITS or key in ("sliding_window", "n_routed_experts") else 1
        if isinstance(value, str | float | bool) or (isinstance(value, int) and value < least):
            yield _no_count(key, value, least, most)
        elif isinstance(value, int) and value > most:
            yield _above(key, value, most)
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if type(heads) is int and type(groups) is int and min(heads, groups) > 0:
        yield from _groups("num_key_value_heads", groups, heads)


def _groups(key: str, groups: int, heads: int) -> Iterator[Finding]:
    if heads % groups:
        message = f"{groups} key and value heads do not share {heads} query heads"
        fix = f"a divisor of {heads} (num_attention_heads)"
        yield Finding("config-heads", message, field=key, fix=fix)


def _no_count(field: str, value: object, least: int, most: int) -> Finding:
    message = f"must be a whole number above {least - 1}, is {value!r}"
    fix = f"a whole number from {least} to {most:,}"
    return Finding("config-field", message, field=field, fix=fix)


def _flags(known: Config) -> Iterator[Finding]:
    for key in FLAGS:
        if type(known.get(key, False)) is not bool:
            message = f"must be true or false, is {known[key]!r}"
            yield Finding("config-field", message, field=key, fix="true or false")


def _heads(known: Config) -> Iterator[Finding]:
    hidden, heads = known["hidden_size"], known["num_attention_heads"]
    if "head_dim" not in known and hidden % heads:
        message = f"{heads} heads do not divide hidden_size {hidden}, and there is no head_dim"
        fix = f"a divisor of {hidden}, or head_dim"
        yield Finding("config-heads", message, field="num_attention_heads", fix=fix)
    elif (size := known.get("head_dim") or hidden // heads) % 2 and _turns_all(known):
        message = f"a head of {size} elements is odd, and rotary positions turn pairs"
        field = "head_dim" if "head_dim" in known else "num_attention_heads"
        yield Finding("config-heads", message, field=field, fix="an even size of a head")
    key = "num_kv_heads" if known.get("new_decoder_architecture") else "num_key_value_heads"
    yield from _groups(key, known.get(key, 1), heads)


def _turns_all(known: Config) -> bool:
    return FAMILIES[str(known["model_type"])].rotary == "whole" and not known.get("alibi")


def _experts(known: Config) -> Iterator[Finding]:
    if not FAMILIES[str(known["model_type"])].sparse:
        return
    key = "num_experts" if known.get("num_experts") else "num_local_experts"
    count, each = known[key], known["num_experts_per_tok"]
    if each > count:
        message = f"a token passes through {each} of {count} experts ({key})"
        yield Finding("config-experts", message, field="num_experts_per_tok", fix=f"1 to {count}")
    dense = known.get("mlp_only_layers", ())
    if not isinstance(dense, list | tuple) or not all(type(layer) is int for layer in dense):
        message = f"must be a list of block numbers, is {dense!r}"
        yield Finding("config-field", message, field="mlp_only_layers", fix="[] for none")


def _activation(known: Config) -> Iterator[Finding]:
    name = known.get("hidden_act", "silu")
    if name not in ACTIVATIONS:
        message = f"{name!r} is no activation function of transformers"
        fix = nearest(str(name), ACTIVATIONS)
        yield Finding("config-field", message, field="hidden_act", fix=fix)
