"""What three other tools say of the same runs, by their own published rules.

    LLaMA-Factory   the table "Hardware Requirement" of its README.md (hiyouga/LLaMA-Factory at
                    00409ff28a30f48d13b808029d37861423673a4a): by method and bits for 7B, 14B, 30B
                    and 70B, and "x" GB of an x B model for other sizes
    Accelerate      accelerate/commands/estimate.py of accelerate 1.15.0: "Training using Adam" for
                    a whole model; it knows no adapters, for which "Total Size" is the nearest
    Unsloth Studio  studio/backend/utils/hardware/vram_estimation.py (unslothai/unsloth at
                    007a781ca04043f98b647df62bedd943daecf274) for a dense model, without its fixed
                    1.4 GiB for driver and runtime, which no measurement here contains

None of the three has a row for weights in fp32 under autocast with an adapter: no answer there.
"""

from dataclasses import dataclass
from typing import Literal

GB = 1e9
Method = Literal["full", "lora"]
# Bytes are GB of the table; the last is per billion parameters.
COLUMNS = (7, 14, 30, 70)
LLAMA_FACTORY: dict[tuple[Method, int], tuple[float, ...]] = {
    ("full", 16): (60, 120, 300, 600, 8),
    ("lora", 16): (16, 32, 64, 160, 2),
    ("lora", 8): (10, 20, 40, 80, 1),
    ("lora", 4): (6, 12, 24, 48, 0.5),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What these rules ask of a run. `billions`: the model's size as its name has it; `targets`:
    (inputs, outputs) of each adapted module; `bits`: of the frozen weights."""

    method: Method
    bits: Literal[4, 16]
    billions: float
    parameters: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    micro: int
    tokens: int
    r: int
    targets: tuple[tuple[int, int], ...]
    paged: bool
    eager: bool


def llama_factory(run: Run) -> float:
    """Bytes by the table: the column of that size, else the formula for x."""
    row = LLAMA_FACTORY[run.method, run.bits]
    if run.billions in COLUMNS:
        return row[COLUMNS.index(int(run.billions))] * GB
    return row[-1] * run.billions * GB


def accelerate(run: Run) -> float:
    """Bytes: training with Adam in 16 bits is the largest of model (4 bytes a parameter), gradients
    (6) and optimizer (8); loading takes 2 bytes a parameter, or half a byte in 4 bits."""
    if run.method == "full":
        return 8.0 * run.parameters
    return run.parameters * run.bits / 8


def unsloth_studio(run: Run) -> float:
    """Bytes: weights, adapter, optimizer, gradients with their floor, activations of all layers."""
    query, keys = run.heads * run.head_dim, run.kv_heads * run.head_dim
    linear = run.layers * (2 * query + 2 * keys + 3 * run.intermediate) * run.hidden
    tables = run.vocab * run.hidden * (1 if run.tied else 2)
    rest = 2 * run.hidden * run.layers + tables
    weights = linear * 2 / (16 / 5) + rest * 2 if run.bits == 4 else (linear + rest) * 2
    per_layer = run.tokens * run.micro * (query + 2 * keys + 2 + 2 * run.intermediate) * 2.5
    activations = per_layer * run.layers
    if run.eager:
        scores = run.micro * run.heads * run.tokens**2 * 2 * 12.0 * run.layers
        activations = max(activations, scores)
    adapter = sum(run.r * (inputs + outputs) for inputs, outputs in run.targets)
    trained = adapter if run.method == "lora" else linear + rest
    optimizer = trained * (8 if run.paged else 6)
    floor = 0.15 * weights
    if run.method == "lora":
        floor = min(floor, max(activations, optimizer))
    kept = adapter * 2 if run.method == "lora" else 0
    return weights + kept + optimizer + max(trained * 2, floor) + activations


PEERS = {
    "LLaMA-Factory": llama_factory,
    "Accelerate": accelerate,
    "Unsloth Studio": unsloth_studio,
}
