"""conf/hardware: every file is valid, and says from where its figures are."""

from pathlib import Path

import pytest

from hashtune import writers
from hashtune.errors import InputError
from hashtune.spec.hardware import FOLDER, no_unit, peak_of, read_hardware

ROOT = Path(__file__).parents[2]
GIB = 2**30
# as the driver reports it to torch, in GiB; the files round down to 0.1 GB
REPORTED = {
    "t4": 14.56,
    "rtx4090": 23.52,
    "a10g": 21.99,
    "l40s": 44.42,
    "a100_40": 39.39,
    "a100_80": 79.14,
    "h100": 79.11,
    "h200": 139.81,
}


def test_all_machines_are_there_under_their_own_names() -> None:
    found = read_hardware(ROOT)
    assert set(found) == {*REPORTED, "cpu"}
    assert all(machine.name == name for name, machine in found.items())
    assert {machine.currency for machine in found.values()} == {"USD"}


@pytest.mark.parametrize("name", sorted(REPORTED))
def test_memory_is_what_the_driver_reports_in_1e9_bytes(name: str) -> None:
    memory = read_hardware(ROOT)[name].memory_gb
    assert 0 <= REPORTED[name] * GIB / 1e9 - memory < 0.1


@pytest.mark.parametrize("name", sorted(REPORTED))
def test_each_figure_has_its_source_in_a_comment(name: str) -> None:
    lines = (ROOT / FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    sourced = ("memory_gb", "overhead_gb", "peak_tflops", "bandwidth_gbs", "expected_utilisation")
    for field in (*sourced, "price_per_hour"):
        (line,) = [line for line in lines if line.startswith(f"{field}:")]
        assert len(line.partition("#")[2]) > 10, line
    (price,) = [line for line in lines if line.startswith("price_per_hour")]
    assert "2026-" in price


def test_a_t4_has_no_bf16_and_a_cpu_no_tf32() -> None:
    found = read_hardware(ROOT)
    assert peak_of(found["t4"].peak_tflops, "bf16") is None
    (finding,) = no_unit(found["t4"], "bf16")
    assert (finding.rule, finding.field) == ("no-unit", "precision")
    assert finding.fix == "precision=fp16, or another hardware"
    assert no_unit(found["t4"], "fp16") == []
    assert no_unit(found["cpu"], "tf32") != []


def test_every_broken_file_is_named(tmp_path: Path) -> None:
    good = (ROOT / FOLDER / "h100.yaml").read_text(encoding="utf-8")
    writers.write_text(
        tmp_path / FOLDER / "a.yaml", good.replace("memory_gb: 84.9", "memory_gb: x")
    )
    writers.write_text(tmp_path / FOLDER / "b.yaml", "name: [")
    writers.write_text(tmp_path / FOLDER / "c.yaml", good)
    with pytest.raises(InputError) as caught:
        read_hardware(tmp_path)
    found = [(finding.file, finding.field) for finding in caught.value.findings]
    assert found == [("conf/hardware/a.yaml", "memory_gb"), ("conf/hardware/b.yaml", None)]
