"""Which run a memory plan is for, told by what decides its memory; no torch.

plan writes the hash into its report and train compares it with its own, since DVC does not watch
that file for train: it may be of another spec, or of another machine's commit.
"""

from collections.abc import Iterable
from pathlib import Path

from hashtune import writers
from hashtune.spec.schema import Spec


def workload_sha256(spec: Spec, inputs: Iterable[Path]) -> str:
    """Hex sha256 of the settings that decide memory and of the content of `inputs`.

    Args:
        spec: the sections that plan and train both read.
        inputs: the base's manifest and the tables of pack, counted by name and content.
    """
    parts = {
        "inputs": {path.as_posix(): writers.sha256_file(path) for path in inputs},
        "method": spec.method.model_dump(),
        "quantization": spec.quantization.model_dump(),
        "optimizer": [spec.optim.name, spec.optim.master_weights],
        "batch": spec.batch.model_dump(),
        "activations": spec.activations.model_dump(),
        "precision": spec.precision,
        "kernels": spec.kernels,
        "added_tokens": spec.tokenizer.added_tokens,
        "device": spec.hardware.device,
    }
    return writers.sha256_bytes(writers.canonical_json(parts, indent=None).encode())
