"""Full fine-tuning in the memory plan: what is trained, and what that adds to a step.

No adapter and no master copy: weights are fp32 and their own, so AdamW takes 16 bytes a parameter
(weight, gradient, two moments), as mixed precision with bf16 weights and fp32 masters does (2 + 2 +
12, Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054, section 3.1).
"""

from math import prod

from hashtune.memory.layout import Shape
from hashtune.spec.schema import OptimizerName

FP32 = 4
Matrices = list[tuple[int, int, int]]
Vectors = list[tuple[int, int]]
# torch's loop over all tensors at once, its choice on CUDA, keeps a temporary of each
FOREACH: tuple[OptimizerName, ...] = ("adamw", "sgd")
UPDATE_COPIES = 3  # temporaries of the largest tensor in an update of one tensor at a time


def tables(shape: Shape) -> Matrices:
    """(rows, columns, how many) of embedding and head; a tied head is the embedding."""
    return [(shape.vocab, shape.hidden, 1 if shape.tied else 2)]


def block_matrices(shape: Shape) -> Matrices:
    """(rows, columns, how many) of the blocks' linear weights, experts and routers."""
    found = [(one.outputs, one.inputs, shape.count(one)) for one in shape.linears]
    for bare in shape.bare:
        if len(bare.size) > 1:
            *stacked, rows, columns = bare.size
            found.append((prod(stacked) * rows, columns, shape.count(bare)))
    return found


def vectors(shape: Shape) -> Vectors:
    """(length, how many) of norms, biases and single rows. Positions that are learned count as
    one."""
    found = [(norm.parameters, shape.layers) for norm in shape.norms]
    found.append((shape.final_norm.parameters, 1))
    found += [(linear.outputs, shape.count(linear)) for linear in shape.linears if linear.bias]
    found += [(bare.size[0], shape.count(bare)) for bare in shape.bare if len(bare.size) == 1]
    outside = (shape.vocab * shape.head_bias, shape.others)
    return found + [(length, 1) for length in outside if length]


def optimizer_parts(shape: Shape, optimizer: OptimizerName) -> tuple[Matrices, Vectors]:
    """Matrices and vectors as optimizer_state.py takes them. Muon leaves embedding and head to
    AdamW, so they count as vectors there."""
    matrices, rest = block_matrices(shape), vectors(shape)
    if optimizer == "muon":
        return matrices, rest + [(rows * columns, count) for rows, columns, count in tables(shape)]
    return tables(shape) + matrices, rest


def update_bytes(
    shape: Shape, optimizer: OptimizerName, element: int = FP32, *, device: str
) -> int:
    """Temporaries of the optimizer's step, when activations are gone and moments are there."""
    matrices = tables(shape) + block_matrices(shape)
    largest = max(rows * columns for rows, columns, _ in matrices)
    everything = shape.parameters if device == "cuda" and optimizer in FOREACH else 0
    return max(everything, UPDATE_COPIES * largest) * element
