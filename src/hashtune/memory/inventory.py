"""The shape of any causal language model, read off what transformers builds on the meta device:
names and sizes of its modules, no weights. Takes seconds, for model types without a family.

Nothing here is shared with families.py, so that each proves the other.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from hashtune.errors import Finding, InputError
from hashtune.memory.layout import Bare, Experts, Layers, Linear, Norm, NormKind, Reads, Shape

ATTENTION_OUT = ("o_proj", "dense", "out_proj", "c_proj", "wo")
SHARED = "shared_expert"


def inventory(config: Mapping[str, Any]) -> Shape:
    """The shape of the model that this config.json builds.

    Raises:
        InputError: transformers has no causal language model of this type, or one whose blocks
            are no list of modules.
    """
    model = _on_meta(config)
    settings = model.config.get_text_config()
    prefix, blocks = _blocks(model, settings.num_hidden_layers)
    if not prefix:
        raise _refused(config, f"{type(model).__name__} has no list of blocks")
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    heads = getattr(settings, "num_attention_heads", 0) or 1
    head_dim = getattr(settings, "head_dim", None) or settings.hidden_size // heads
    linears = _linears(blocks)
    if not {"attention", "attended"} <= {linear.reads for linear in linears}:
        raise _refused(config, f"{type(model).__name__} has no attention in its blocks")
    kv_heads = _kv_heads(settings, linears, heads, head_dim)
    bare = _bare(blocks)
    outside = _outside(model, prefix, [embedding, head])
    return Shape(
        model_type=str(config["model_type"]),
        layers=len(blocks),
        hidden=settings.hidden_size,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=_widest(linears, bare, settings.hidden_size),
        vocab=embedding.weight.shape[0],
        tied=head.weight is embedding.weight,
        linears=linears,
        norms=_norms(blocks[0], heads, kv_heads),
        final_norm=outside[0],
        bare=bare,
        experts=_experts(settings, linears, bare),
        head_bias=getattr(head, "bias", None) is not None,
        others=outside[1],
        prefix=prefix,
        gated=_gated(linears, bare),
        activation=_activation(settings),
        attention_softcap=bool(getattr(settings, "attn_logit_softcapping", None)),
        logit_softcap=bool(getattr(settings, "final_logit_softcapping", None)),
        window=getattr(settings, "sliding_window", None) or 0,
        rotary=_rotary(model),
        parallel=_parallel(settings, blocks[0]),
    )


def _refused(config: Mapping[str, Any], reason: str) -> InputError:
    message = f"{config['model_type']!r} has no memory formula here: {reason}"
    return InputError(Finding("model-type", message, file="config.json", field="model_type"))


def _on_meta(config: Mapping[str, Any]) -> Any:
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {key: value for key, value in config.items() if key != "model_type"}
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built = AutoConfig.for_model(str(config["model_type"]), **settings)
            model = AutoModelForCausalLM.from_config(built)
    except (ValueError, KeyError, StrictDataclassError) as error:
        # transformers puts the names of all its configurations on further lines
        said = str(error).partition("\n")[0].partition(". ")[0]
        raise _refused(config, said) from error
    model.tie_weights()
    return model


def _blocks(model: Any, count: int) -> tuple[str, list[Any]]:
    """Path and blocks: the first list of as many modules as there are hidden layers."""
    from torch import nn

    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, list(module)
    return "", []


def _layers(found: Iterable[int], count: int) -> Layers:
    layers = tuple(found)
    return None if len(layers) == count else layers


def _linears(blocks: list[Any]) -> tuple[Linear, ...]:
    found: dict[tuple[str, int, int, bool], list[int]] = defaultdict(list)
    for layer, block in enumerate(blocks):
        for name, module in block.named_modules():
            if (sizes := _sizes(module)) is not None:
                found[(name, *sizes, module.bias is not None)].append(layer)
    return tuple(
        Linear(name, inputs, outputs, bias, _reads(name), _layers(layers, len(blocks)))
        for (name, inputs, outputs, bias), layers in found.items()
    )


def _sizes(module: Any) -> tuple[int, int] | None:
    """Inputs and outputs of a linear module; GPT-2's Conv1D is one with its weight transposed."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, Conv1D):
        return module.nx, module.nf
    return None


def _reads(name: str) -> Reads:
    """By its name: in attention all but the last read its norm, in the MLP all but the last."""
    where, _, leaf = name.rpartition(".")
    if "attn" in where or "attention" in where:
        return "attended" if leaf in ATTENTION_OUT else "attention"
    last = leaf.startswith(("down", "fc2", "dense_4h", "c_proj", "w2", "fc_out"))
    if not last:
        return "mlp"
    return "shared" if SHARED in where else "product"


def _kv_heads(settings: Any, linears: tuple[Linear, ...], heads: int, head_dim: int) -> int:
    """What the projections into attention give beside the queries, half keys and half values; what
    the config says where that comes out at no whole number (attention through a latent)."""
    given = sum(linear.outputs for linear in linears if linear.reads == "attention")
    count, rest = divmod(given - heads * head_dim, 2 * head_dim)
    said = getattr(settings, "num_key_value_heads", None) or heads
    return count if count > 0 and not rest else int(said)


def _norms(block: Any, heads: int, kv_heads: int) -> tuple[Norm, ...]:
    """Modules called a norm, StableLM's list of one a head as one."""
    found, inside = [], set[str]()
    for name, module in block.named_modules():
        if "Norm" not in type(module).__name__ or any(name.startswith(f"{i}.") for i in inside):
            continue
        weights = dict(module.named_parameters())
        if not weights:
            continue
        inside.add(name)
        sizes = [len(weight) for key, weight in weights.items() if key.endswith("weight")]
        biased = any(key.endswith("bias") for key in weights)
        vectors = _vectors(name, sizes[0], block, heads, kv_heads)
        found.append(Norm(name, sizes[0], _kind(module), biased, vectors, len(sizes)))
    return tuple(found)


def _kind(module: Any) -> NormKind:
    return "layer" if "LayerNorm" in type(module).__name__ else "rms"


def _vectors(name: str, width: int, block: Any, heads: int, kv_heads: int) -> int:
    """How many vectors of a token it normalises: heads, if it lies in attention and is narrower
    than what its projection gives."""
    leaf = name.rpartition(".")[2]
    if "attn" not in name.partition(".")[0] or not leaf.startswith(("q_", "k_")):
        return 1
    outputs = {
        path.rpartition(".")[2]: sizes[1]
        for path, module in block.named_modules()
        if (sizes := _sizes(module)) is not None
    }
    whole = outputs.get(f"{leaf[0]}_proj", 0)
    return 1 if whole == width else (heads if leaf[0] == "q" else kv_heads)


def _bare(blocks: list[Any]) -> tuple[Bare, ...]:
    """Parameters that no linear module, norm or embedding owns."""
    found: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    for layer, block in enumerate(blocks):
        owned = {
            f"{name}.{key}"
            for name, module in block.named_modules()
            if _sizes(module) is not None or "Norm" in type(module).__name__
            for key, _ in module.named_parameters()
        }
        for name, parameter in block.named_parameters():
            if name not in owned:
                found[(name, tuple(parameter.shape))].append(layer)
    return tuple(
        Bare(name, size, _layers(layers, len(blocks))) for (name, size), layers in found.items()
    )


def _outside(model: Any, prefix: str, known: list[Any]) -> tuple[Norm, int]:
    """The norm behind the blocks, and how many parameters lie outside beside it."""
    owned = {id(parameter) for module in known for parameter in module.parameters()}
    rest = {
        name: parameter
        for name, parameter in model.named_parameters()
        if not name.startswith(f"{prefix}.") and id(parameter) not in owned
    }
    names = [name for name, module in model.named_modules() if "Norm" in type(module).__name__]
    last = next(name for name in reversed(names) if not name.startswith(f"{prefix}."))
    module = model.get_submodule(last)
    width, bias = len(module.weight), getattr(module, "bias", None) is not None
    norm = Norm(last, width, _kind(module), bias)
    return norm, sum(parameter.numel() for parameter in rest.values()) - norm.parameters


def _widest(linears: tuple[Linear, ...], bare: tuple[Bare, ...], hidden: int) -> int:
    """Width of the dense MLP, or of an expert where no block has one."""
    widths = [linear.inputs for linear in linears if linear.reads == "product"]
    return max(widths, default=0) or _expert_width(bare, hidden)


def _expert_width(bare: tuple[Bare, ...], hidden: int) -> int:
    """The side of the stack that leads back that is not the hidden one."""
    down = [one.size for one in bare if len(one.size) == 3 and "down" in one.name]
    return next((rows + columns - hidden for _, rows, columns in down), 0)


def _gated(linears: tuple[Linear, ...], bare: tuple[Bare, ...]) -> bool:
    """Two projections, or one twice as wide, go into what the last one reads."""
    last = [linear for linear in linears if linear.reads == "product"]
    if not last:
        return any("gate" in one.name for one in bare if len(one.size) == 3)
    first = [linear for linear in linears if linear.reads == "mlp" and SHARED not in linear.name]
    return sum(linear.outputs for linear in first) >= 2 * last[0].inputs


def _rotary(model: Any) -> Literal["none", "whole", "part"]:
    if not any("Rotary" in type(module).__name__ for module in model.modules()):
        return "none"
    said = getattr(model.config, "rope_parameters", None) or {}
    return "part" if said.get("partial_rotary_factor") is not None else "whole"


def _parallel(settings: Any, block: Any) -> bool:
    """What the config says, or one norm for a whole block."""
    said = (getattr(settings, name, False) for name in ("use_parallel_residual", "parallel_attn"))
    children = [type(module).__name__ for module in block.children()]
    return any(said) or sum("Norm" in name for name in children) == 1


def _activation(settings: Any) -> str:
    names = ("hidden_act", "hidden_activation", "activation_function", "activation")
    found = (getattr(settings, name, None) for name in names)
    return str(next((name for name in found if name), "silu"))


def _experts(settings: Any, linears: tuple[Linear, ...], bare: tuple[Bare, ...]) -> Experts | None:
    stacks = [one for one in bare if len(one.size) == 3]
    if not stacks:
        return None
    shared = [linear.inputs for linear in linears if linear.reads == "shared"]
    return Experts(
        count=stacks[0].size[0],
        per_token=int(getattr(settings, "num_experts_per_tok", 1)),
        width=_expert_width(bare, settings.hidden_size),
        shared=max(shared, default=0),
        layers=stacks[0].layers,
    )
