"""precision and optim.master_weights: composed, what they rule out, and what rounding costs."""

import struct
from pathlib import Path
from typing import Any, get_args

import pytest

from hashtune.errors import Finding, InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import read_params, validate
from hashtune.spec.precision import (
    BF16_MOMENTS,
    LOST_BELOW,
    LR_SIZED,
    precision_findings,
    rounding_warnings,
    stored_type,
    trained_type,
)
from hashtune.spec.schema import OptimizerName, Spec
from hashtune.spec.training import training_findings

ROOT = Path(__file__).parents[2]
FINDING = {"fp16": "GradScaler", "fp32": "their own master weights", "tf32": "are fp32"}


def spec(**changes: Any) -> Spec:
    params = read_params(ROOT / "params.yaml")
    for dotted, value in changes.items():
        section, _, key = dotted.rpartition(".")
        (params[section] if section else params)[key] = value
    return validate(params)


def findings(**changes: Any) -> list[Finding]:
    found = precision_findings(spec(**changes))
    assert all(finding in training_findings(spec(**changes)) for finding in found)
    return found


def test_the_default_composes_with_master_weights(project: Path) -> None:
    default = validate(parse(compose(project)))
    assert (default.precision, default.optim.master_weights) == ("fp32", True)
    assert precision_findings(default) == []
    assert list(rounding_warnings(default.optim, micro_batches=1000)) == []


@pytest.mark.parametrize("file", sorted((ROOT / "conf/optim").glob("*.yaml")), ids=lambda f: f.stem)
def test_every_optimizer_composes_with_and_without(file: Path, project: Path) -> None:
    chosen = [f"optim={file.stem}", "precision=bf16"]
    assert validate(parse(compose(project, chosen))).optim.master_weights is True
    without = validate(parse(compose(project, [*chosen, "optim.master_weights=false"])))
    assert without.optim.master_weights is False


def test_tf32_composes_for_cuda_and_is_refused_on_a_cpu(project: Path) -> None:
    cuda = validate(parse(compose(project, ["precision=tf32", "hardware=h100"])))
    assert precision_findings(cuda) == []
    cpu = validate(parse(compose(project, ["precision=tf32"])))
    (finding,) = precision_findings(cpu)
    assert (finding.rule, finding.field, finding.fix) == (
        *("cuda-only", "precision", "precision=fp32"),
    )
    assert finding in training_findings(cpu)


def test_evaluation_has_no_tf32() -> None:
    params = read_params(ROOT / "params.yaml")
    params["evaluation"]["base_precision"] = "tf32"
    with pytest.raises(InputError, match=r"evaluation\.base_precision"):
        validate(params)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "tf32"])
def test_only_bf16_goes_without_master_weights(precision: str) -> None:
    changes = {"precision": precision, "optim.master_weights": False, "hardware.device": "cuda"}
    (finding,) = findings(**changes)
    assert (finding.rule, finding.field) == ("contradiction", "optim.master_weights")
    assert FINDING[precision] in finding.message
    assert finding.fix == "optim.master_weights=true, or precision=bf16"
    assert findings(**{**changes, "optim.master_weights": True}) == []
    assert findings(**{**changes, "precision": "bf16"}) == []


def test_both_faults_come_at_once() -> None:
    found = findings(**{"precision": "tf32", "optim.master_weights": False})
    assert [finding.rule for finding in found] == ["cuda-only", "contradiction"]


def test_types() -> None:
    kinds = ("fp32", "tf32", "bf16", "fp16")
    assert [stored_type(kind) for kind in kinds] == ["fp32", "fp32", "bf16", "fp16"]
    assert {trained_type(kind, master_weights=True) for kind in kinds} == {"fp32"}
    assert trained_type("bf16", master_weights=False) == "bf16"


def warnings(*, micro_batches: int = 1, **optim: Any) -> list[str]:
    optim = {f"optim.{name}": value for name, value in optim.items()}
    settings = spec(**{"optim.master_weights": False, **optim}).optim
    return list(rounding_warnings(settings, micro_batches=micro_batches))


def test_gradients_of_micro_batches_are_added_in_bf16() -> None:
    """Numbers in [256, 512) lie 2 apart: 256 + 1 is a tie, and 256 the even one of both."""
    assert warnings(name="lion") == warnings(name="lion", micro_batches=1)
    *_, few = warnings(name="lion", micro_batches=16)
    assert few == (
        "batch.grad_accum 16 without master weights: the gradients of a step's micro-batches are "
        "added in bf16, where a part smaller than 2^-9 (0.2 %) of the sum is lost. A larger "
        "batch.micro with a smaller batch.grad_accum adds fewer"
    )
    *_, many = warnings(name="lion", micro_batches=1000)
    assert "is lost; a sum of equal ones stops at 256 to 512 of them. A larger" in many
    assert "equal" not in warnings(name="lion", micro_batches=256)[-1]
    for part in (1.0, 0.01, 1.3, 1.9):
        total = 0.0
        for _ in range(1000):
            total = bf16(total + bf16(part))
        assert 256 * 0.99 <= total / bf16(part) <= 512


def test_the_words() -> None:
    """1e-3 is 2^-9 of 0.512."""
    first, second = warnings(lr=1e-3, beta2=0.999)
    assert first == (
        "optim.master_weights false: an update smaller than 2^-9 (0.2 %) of its weight is lost, "
        "since bf16 keeps 8 significant bits; one as large as optim.lr 0.001 moves no weight "
        "beyond 0.512 in size"
    )
    assert second.startswith("optim.beta2 0.999 without master weights: the second moment is bf16")


def test_what_each_optimizer_is_told() -> None:
    assert len(warnings(name="adamw_8bit", beta2=0.999)) == 1  # its moments are no bf16
    assert len(warnings(name="adamw", beta2=0.99)) == 1
    (sgd,) = warnings(name="sgd", beta2=0.999)
    assert sgd.endswith("8 significant bits")  # its updates are as large as its gradients
    names = set(get_args(OptimizerName))
    assert names - LR_SIZED == {"sgd"}
    assert BF16_MOMENTS <= LR_SIZED <= names


def bf16(value: float) -> float:
    """Rounded to nearest, ties to even: the upper 16 bits of an fp32 number."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    (rounded,) = struct.unpack("<f", struct.pack("<I", kept))
    return float(rounded)


@pytest.mark.parametrize("weight", [1.0, 1.5, 1.9921875, 0.0078125, 3.0])
def test_the_number_is_where_every_update_is_lost(weight: float) -> None:
    """1.9921875 = 255/128 is the largest below 2, where the bound is reached but for 1/256."""
    assert bf16(weight) == weight
    for sign in (1, -1):
        assert bf16(weight + sign * weight * LOST_BELOW * 0.999) == weight
        assert bf16(weight + sign * weight * LOST_BELOW * 2.01) != weight
    assert bf16(1.9921875 * (1 + LOST_BELOW * 1.01)) != 1.9921875
