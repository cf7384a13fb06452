"""Activation checkpointing: a block keeps its input and is computed again in the backward.

Non-reentrant (torch.utils.checkpoint): random numbers and autocast are those of the first time, so
loss and gradients keep their bits, dropout included (tests/training/test_activations.py). The
price is the forward of these blocks once more: of a LoRA step's 4N FLOPs per token, 2N in `full`.
"""

from hashtune.errors import Finding, InputError
from hashtune.spec.activations import EVERY_NTH_BLOCK, offload_on_cpu
from hashtune.spec.schema import Activations
from hashtune.training.model import Trainee


def set_checkpointing(trainee: Trainee, activations: Activations) -> int:
    """Set what the backward computes again; returns how many blocks that are.

    Raises:
        InputError: offloading on a CPU; a model whose blocks cannot be checkpointed.
    """
    if activations.checkpointing == "none":
        return 0
    if trainee.device.type == "cpu" and activations.offload:
        raise InputError(offload_on_cpu(activations))
    base = trainee.peft.get_base_model()
    if not base.supports_gradient_checkpointing:
        message = f"{type(base).__name__} has no blocks that can be checkpointed"
        fix = "activations=none"
        raise InputError(
            Finding("unsupported-model", message, field="activations.checkpointing", fix=fix)
        )
    base.activation_checkpointing_enable(
        activation_checkpointing_kwargs={"use_reentrant": False},
        every_n_layers=EVERY_NTH_BLOCK[activations.checkpointing],
        offload=activations.offload,
    )
    # which reentrant checkpointing needs: it would carry gradients below the first adapter
    base.disable_input_require_grads()
    return sum(block.gradient_checkpointing for block in base.model.layers)
