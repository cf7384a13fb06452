"""Where train runs (`device`), beside the machine that the plan reckons with (`hardware.device`).

What needs CUDA (precision.py, activations.py, training.py) is judged in `spec` by hardware.device,
so that a plan for a GPU can be made anywhere, and in train by the device of the model.
"""

from hashtune.errors import Finding
from hashtune.spec.schema import Spec

FILE = "params.yaml"


def device_findings(spec: Spec) -> list[Finding]:
    """The finding for training on a GPU that the plan knows nothing of."""
    if spec.device == "cpu" or spec.hardware.device == "cuda":
        return []
    message = f"train would run on CUDA, and the plan reckons with {spec.hardware.name}, a CPU"
    fix = "hardware=h100, or device=cpu"
    return [Finding("contradiction", message, file=FILE, field="device", fix=fix)]


def no_gpu() -> Finding:
    """The finding for a run on CUDA where torch finds none."""
    message = "train is to run on CUDA, and torch finds no GPU here"
    return Finding("no-gpu", message, file=FILE, field="device", fix="device=cpu")
