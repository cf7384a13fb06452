"""Level 1 of the memory plan: one formula per bucket, in bytes (GB is 1e9 bytes), no torch.

    weights        the frozen base as stored          dequantisation  one layer, unpacked for use
    adapter        its weights, fp32 or bf16          logits_loss     one chunk of logits
    gradients      of the adapter, in its type        activations     see activations.py
    master         0: the adapter itself, or none     overhead        context, fragmentation
    optimizer      its moments, see optimizer_state.py
    added_tokens   copies of embedding and head, where rows of them are trained
    update         of full fine-tuning: what its optimizer step needs beyond the activations' room

Allocated memory is the sum without overhead. The defaults of a Workload are the settings of
training/: adapter and its state in fp32, bf16 or fp16 by autocast, the head on trained positions
only. Without master weights the adapter is bf16. In full fine-tuning the weights are what is
trained, in fp32, and there is no adapter. Other routes: routes.py.
"""

from hashtune.memory.full import optimizer_parts
from hashtune.memory.losses import (
    HEAD_CHUNK,
    LOSS_CHUNK,
    full_logits_bytes,
    logits_bytes,
    loss_bytes,
)
from hashtune.memory.optimizer_state import optimizer_bytes
from hashtune.memory.shapes import Shape
from hashtune.memory.weights import NF4_BITS, dequantisation_bytes, weight_bytes
from hashtune.memory.workload import BYTES, FP32, Workload
from hashtune.training.utilisation import Work

__all__ = [
    "BYTES",
    "FP32",
    "HEAD_CHUNK",
    "LOSS_CHUNK",
    "NF4_BITS",
    "Buckets",
    "Workload",
    "added_token_bytes",
    "dequantisation_bytes",
    "flops_per_token",
    "full_logits_bytes",
    "host_bytes",
    "logits_bytes",
    "loss_bytes",
    "static_bytes",
    "weight_bytes",
]

Buckets = dict[str, int]


def added_token_bytes(work: Workload) -> int:
    """Where rows are trained, PEFT puts them into a copy of the whole matrix: the copy that the
    head's backward keeps, and the gradients of head and embedding before their rows are taken."""
    if not work.added_tokens:
        return 0
    return 3 * work.shape.vocab * work.shape.hidden * work.residual


def static_bytes(work: Workload) -> Buckets:
    """What is there before a token arrives, by the route (routes.py). An fp32 adapter is its own
    master copy, and a bf16 one has none unless the route keeps one; the weights of full
    fine-tuning, which has no adapter, are what is trained."""
    trained = work.adapter_parameters
    found = {"weights": weight_bytes(work)}
    if not work.full:
        found["adapter"] = trained * work.trained_element
    found |= {
        "gradients": trained * work.trained_element,
        "master": trained * work.master_element,
        "optimizer": optimizer_bytes(
            work.optimizer,
            *trained_parts(work),
            element=work.state_element,
            momentum=work.momentum,
        ),
    }
    if work.accumulation_buffer:
        found["accumulation"] = found["gradients"]
    return found


def trained_parts(work: Workload) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Matrices and vectors that are trained, as optimizer_state.py takes them."""
    if work.full:
        return optimizer_parts(work.shape, work.optimizer)
    matrices, vectors = work.matrices, list(work.magnitudes)
    if work.optimizer == "muon":  # an embedding by its name, so AdamW's
        vectors += [(rows * columns, count) for rows, columns, count in work.prompt]
    else:
        matrices += work.prompt
    return matrices, vectors


def host_bytes(work: Workload) -> int:
    """What a paged optimizer's state can take of host memory: on CUDA it lies in memory that both
    see, and the driver moves it out when a long row needs the room (Dettmers et al. 2023, arXiv
    2305.14314, section 3). It is counted on the card as well, where it is when it fits."""
    paged = work.optimizer.startswith("paged") and work.device == "cuda"
    return static_bytes(work)["optimizer"] if paged else 0


def flops_per_token(
    shape: Shape, *, adapter: int, context: float, recomputed_blocks: int = 0, full: bool = False
) -> float:
    """FLOPs to train on one token, those of blocks that are computed again included, as training
    reckons its HFU: 4 for each frozen parameter and 6 for each trained one; `full`: all of them.
    Of experts only those count that a token is sent to.

    `context` is the mean length of the document that a token lies in.
    """
    width = shape.heads * shape.head_dim
    idle = shape.parameters - shape.active_parameters
    beside = 0 if full else adapter
    blocks = shape.linear_weights + shape.expert_weights - idle
    again = (blocks + beside) * recomputed_blocks // shape.layers
    frozen, trained = (0, adapter - idle) if full else (shape.parameters - idle, adapter)
    work = Work(
        *(frozen, trained, shape.layers, width),
        again=again,
        layers_again=recomputed_blocks,
    )
    return work.hardware_flops(context=context)
