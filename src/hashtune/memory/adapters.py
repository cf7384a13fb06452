"""Which modules of a shape carry an adapter, and how large its matrices are.

LoRA: A is r x in, B is out x r (Hu et al. 2021, arXiv 2106.09685). DoRA adds a magnitude for each
output (Liu et al. 2024, arXiv 2402.09353). Experts that are one stacked parameter are no modules:
"all-linear" leaves them out, and PEFT 0.21 adapts them where `target_parameters` name them
(tuners/lora/layer.py, ParamWrapper): one A of experts * r rows and one B of as many columns.
"""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Literal

from hashtune.errors import Finding, InputError, nearest
from hashtune.memory.layout import Linear, Shape
from hashtune.spec.targets import Matched, match

Ranks = Sequence[tuple[str, int]]  # name of a bare parameter, rank for each expert
CONVERTED = ("mixtral", "qwen2_moe", "qwen3_moe")


def module_names(shape: Shape) -> dict[str, Linear]:
    """Full name -> linear module, over all blocks."""
    return {
        f"{shape.prefix}.{layer}.{linear.name}": linear
        for layer in range(shape.layers)
        for linear in shape.of(shape.linears, layer)
    }


def match_targets(shape: Shape, targets: str | Sequence[str]) -> Matched:
    """What the targets match among the linear modules of the blocks.

    Raises:
        InputError: one finding for each target that matches no module.
    """
    return match(module_names(shape), targets)


def adapted_modules(shape: Shape, targets: str | Sequence[str]) -> dict[str, int]:
    """How many modules of each name ("self_attn.q_proj") carry an adapter, in the order of the
    shape. InputError as `match_targets`."""
    if not targets:
        return {}
    if isinstance(targets, str):
        return {linear.name: shape.count(linear) for linear in shape.linears}
    modules = module_names(shape)
    counts = Counter(modules[name].name for name in match(modules, targets).names)
    return {linear.name: counts[linear.name] for linear in shape.linears if counts[linear.name]}


def lora_matrices(
    shape: Shape, r: int, targets: str | Sequence[str], bare: Ranks = ()
) -> list[tuple[int, int, int]]:
    """(rows, columns, how many) of the adapter's matrices; `bare` are parameters that are no
    module's. InputError as `adapted_modules` and `bare_matrices`."""
    counts = adapted_modules(shape, targets)
    return [
        matrix
        for linear in shape.linears
        if (count := counts.get(linear.name, 0))
        for matrix in ((r, linear.inputs, count), (linear.outputs, r, count))
    ] + bare_matrices(shape, bare)


def bare_matrices(shape: Shape, ranks: Ranks) -> list[tuple[int, int, int]]:
    """(rows, columns, how many) of the adapter on bare matrices and stacks of them.

    Raises:
        InputError: the model has no such parameter.
    """
    known = {bare.name: bare for bare in shape.bare if len(bare.size) > 1}
    if unknown := [name for name, _ in ranks if name not in known]:
        raise InputError(
            Finding("target", f"{name!r} is no parameter of a block; {nearest(name, known)}")
            for name in unknown
        )
    found = []
    for name, r in ranks:
        *stacked, rows, columns = known[name].size
        many, total = shape.count(known[name]), prod(stacked) * r
        found += [(total, columns, many), (rows, total, many)]
    return found


def all_linear_ranks(shape: Shape, r: int) -> Ranks:
    """What PEFT's own "all-linear" adapts of experts, beside the linear modules: what were modules
    before transformers 5 fused them, twice the rank where two were fused, and the router (PEFT
    0.21, utils/transformers_weight_conversion.py). hashtune names modules itself, so none."""
    if shape.model_type not in CONVERTED:
        return ()
    return (
        ("mlp.gate.weight", r),
        ("mlp.experts.gate_up_proj", 2 * r),
        ("mlp.experts.down_proj", r),
    )


def magnitude_vectors(shape: Shape, targets: str | Sequence[str]) -> list[tuple[int, int]]:
    """(length, how many) of DoRA's magnitudes. InputError as `adapted_modules`."""
    counts = adapted_modules(shape, targets)
    return [
        (linear.outputs, counts[linear.name]) for linear in shape.linears if linear.name in counts
    ]


def prompt_matrix(shape: Shape, kind: Literal["prompt", "prefix"], count: int) -> tuple[int, int]:
    """(rows, columns) of `count` virtual tokens: a prompt's are embeddings, a prefix's the keys and
    values of every block."""
    return count, shape.hidden if kind == "prompt" else 2 * shape.layers * shape.key


def lora_parameters(shape: Shape, r: int, targets: str | Sequence[str], bare: Ranks = ()) -> int:
    """Trainable parameters of a LoRA adapter: r * (in + out) for each adapted module, and for each
    expert of an adapted stack."""
    matrices = lora_matrices(shape, r, targets, bare)
    return sum(rows * columns * count for rows, columns, count in matrices)
