"""Rules of the section activations, and which blocks its checkpointing means."""

from hashtune.errors import Finding
from hashtune.spec.schema import Activations

FILE = "params.yaml"
# checkpointing: every n-th block is computed again, the first one included
EVERY_NTH_BLOCK = {"selective": 2, "full": 1}


def offload_findings(activations: Activations, *, device: str) -> list[Finding]:
    """The finding for offloading that moves nothing, on the `device` of the spec's hardware."""
    if not activations.offload:
        return []
    if device == "cpu":
        return offload_on_cpu(activations)
    return offload_of_nothing(activations)


def offload_of_nothing(activations: Activations) -> list[Finding]:
    """The finding for offloading where no block is checkpointed."""
    if not activations.offload or activations.checkpointing != "none":
        return []
    message = "offloads the inputs of checkpointed blocks, and no block is checkpointed"
    fix = "activations=full, or activations.offload=false"
    return [Finding("contradiction", message, file=FILE, field="activations.offload", fix=fix)]


def offload_on_cpu(activations: Activations) -> list[Finding]:
    """The finding for offloading where activations are in host memory anyway."""
    if not activations.offload:
        return []
    message = "moves activations from a GPU to its host, and this is a CPU"
    fix = "activations.offload=false"
    return [Finding("cuda-only", message, file=FILE, field="activations.offload", fix=fix)]
