"""conf/hardware: every machine that a plan can be held against, and what each can compute in."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hashtune.errors import Finding, InputError
from hashtune.spec.schema import Hardware, PeakTflops, Precision

FOLDER = Path("conf/hardware")


def peak_of(peaks: PeakTflops, precision: Precision) -> float | None:
    """Dense peak in 1e12 operations a second; None where the hardware has no unit for it."""
    peak: float | None = getattr(peaks, precision)
    return peak


def no_unit(hardware: Hardware, precision: Precision) -> list[Finding]:
    """The finding for a precision that this hardware does not compute in."""
    if peak_of(hardware.peak_tflops, precision) is not None:
        return []
    known = [name for name, peak in hardware.peak_tflops if peak is not None]
    message = f"{hardware.name} has no unit for {precision}; it has {', '.join(known)}"
    fix = f"precision={known[-1]}, or another hardware"
    return [Finding("no-unit", message, file="params.yaml", field="precision", fix=fix)]


def read_hardware(root: Path) -> dict[str, Hardware]:
    """The files of conf/hardware under `root` by their names, in alphabetical order.

    Raises:
        InputError: a file is no YAML or breaks the schema; all of them at once.
    """
    import yaml

    found: dict[str, Hardware] = {}
    findings: list[Finding] = []
    for file in sorted((root / FOLDER).glob("*.yaml")):
        shown = (FOLDER / file.name).as_posix()
        try:
            data: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
            found[file.stem] = Hardware.model_validate(data, strict=True)
        except yaml.YAMLError as error:
            findings.append(Finding("yaml", " ".join(str(error).split()), file=shown))
        except ValidationError as error:
            findings += [
                Finding("schema", fault["msg"], file=shown, field=".".join(map(str, fault["loc"])))
                for fault in error.errors()
            ]
    if findings:
        raise InputError(findings)
    return found
