"""device: composed, and held against the machine that the plan reckons with."""

from pathlib import Path

import pytest

from hashtune.errors import InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.device import device_findings
from hashtune.spec.load import read_params, validate
from hashtune.spec.training import training_findings


@pytest.mark.parametrize(
    ("overrides", "device"),
    [
        ([], "cpu"),
        (["hardware=h100"], "cpu"),  # a plan for a GPU is made anywhere
        (["device=cuda", "hardware=h100"], "cuda"),
        (["device=cuda", "hardware=h100", "precision=tf32"], "cuda"),
        (["device=cuda", "hardware=h100", "optim=paged_adamw_8bit"], "cuda"),
    ],
)
def test_it_composes(overrides: list[str], device: str, project: Path) -> None:
    spec = validate(parse(compose(project, overrides)))
    assert spec.device == device
    assert device_findings(spec) == []
    assert training_findings(spec) == []


def test_cuda_beside_a_plan_for_a_cpu_is_a_contradiction(project: Path) -> None:
    spec = validate(parse(compose(project, ["device=cuda"])))
    (finding,) = training_findings(spec)
    assert (finding.rule, finding.file, finding.field, finding.fix) == (
        *("contradiction", "params.yaml", "device", "hardware=h100, or device=cpu"),
    )
    assert "the plan reckons with cpu, a CPU" in finding.message


def test_the_other_rules_still_go_by_the_hardware(project: Path) -> None:
    chosen = ["device=cuda", "precision=tf32", "optim=paged_adamw_8bit"]
    found = training_findings(validate(parse(compose(project, chosen))))
    assert sorted((finding.rule, finding.field) for finding in found) == [
        ("contradiction", "device"),
        ("cuda-only", "optim.name"),
        ("cuda-only", "precision"),
    ]


def test_another_word_is_refused(root: Path) -> None:
    with pytest.raises(InputError, match="device"):
        validate(read_params(root / "params.yaml") | {"device": "gpu"})
