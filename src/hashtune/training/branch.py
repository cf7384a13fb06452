"""Begin with the kept state of another run's stable phase (schedule.branch_from).

Refused, by name, unless this run would have come to the same state by itself: the same rows at each
step before it, the same learning rates, libraries and settings that decide bits, the same tensors.
Own code that differs is reported, not refused: the result is still decided by the pinned state and
this code, though it may not be what one long run of either gives.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hashtune.errors import Finding, InputError
from hashtune.spec.branch import FIELD, TENSORS
from hashtune.training.branch_fit import Candidate, fit_findings
from hashtune.training.branch_settings import no_state, read_state
from hashtune.training.checkpoint import Progress


@dataclass(frozen=True, slots=True)
class Branch:
    """A kept state in memory.

    Attributes:
        sha256: the pin.
        parent: train identity of the run that kept it.
        same_code: whether that run's own code was this code.
        tensors: as in a checkpoint, and "best.<name>" where the best step was an earlier one.
        rng: the states of Python's and NumPy's generators.
    """

    sha256: str
    parent: str
    same_code: bool
    progress: Progress
    tensors: dict[str, Tensor]
    rng: dict[str, Any]

    @property
    def step(self) -> int:
        """The last step that this run need not run."""
        return self.progress.step

    def best_adapter(self) -> dict[str, Tensor]:
        """Of the best step so far, as "adapter.<name>"."""
        kind = "adapter." if self.progress.best_step == self.step else "best."
        return {
            f"adapter.{name.removeprefix(kind)}": tensor
            for name, tensor in self.tensors.items()
            if name.startswith(kind)
        }

    def facts(self) -> dict[str, object]:
        """For reports/train.json."""
        return {
            "step": self.step,
            "sha256": self.sha256,
            "parent": self.parent,
            "same_code": self.same_code,
        }


def read_branch(run: Candidate, *, root: Path) -> Branch | None:
    """The state that the run's spec pins, None without a pin; files are read below `root`.

    Raises:
        InputError: as spec/branch.py, for files that are no state, and for all that differs.
    """
    pin = run.spec.schedule.branch_from
    if pin is None:
        return None
    state = read_state(pin, root)
    try:
        progress = Progress(**state["progress"])
        tensors = load_file(root / pin.path / TENSORS)
    except (ValueError, TypeError, SafetensorError) as error:
        raise no_state(f"{pin.path} holds no kept state: {error}") from error
    if findings := list(fit_findings(state, progress, run)):
        raise InputError(findings)
    same = state["code"].get("modules") == run.code.get("modules")
    return Branch(pin.sha256, state["identity"], same, progress, tensors, state["rng"])


def check_trainable(branch: Branch | None, parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise InputError unless the state's adapter has the names, shapes and types of this one."""
    if branch is None:
        return
    kept = {n.removeprefix("adapter."): t for n, t in branch.tensors.items() if n[:8] == "adapter."}
    if findings := list(_tensor_findings(kept, parameters)):
        raise InputError(findings)


def _tensor_findings(
    kept: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]
) -> Iterator[Finding]:
    for what, names in (
        ("lacks", sorted(parameters.keys() - kept.keys())),
        ("holds", sorted(kept.keys() - parameters.keys())),
    ):
        if names:
            message = f"the state to branch from {what} {len(names)} trained tensors: {names[0]}"
            fix = "method.targets as in the run that kept it"
            field = "method.targets"
            yield Finding("branch-differs", message, file="params.yaml", field=field, fix=fix)
    for name in sorted(kept.keys() & parameters.keys()):
        has, needs = (f"{list(t.shape)} of {t.dtype}" for t in (kept[name], parameters[name]))
        if has != needs:
            message = f"{name} is {has} in the state to branch from, and {needs} here"
            yield Finding("branch-differs", message, file="params.yaml", field=FIELD)
