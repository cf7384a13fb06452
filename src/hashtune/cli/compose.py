"""hashtune compose: the bytes `dvc exp run` would write to params.yaml, checked before writing."""

from collections.abc import Sequence
from pathlib import Path

from hashtune import writers
from hashtune.errors import InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import PARAMS, validate
from hashtune.spec.pins import check_pins


def run(overrides: Sequence[str], *, only_print: bool) -> int:
    """Compose, validate, write params.yaml (or print it). A refused spec changes nothing."""
    text = compose(Path.cwd(), overrides)
    findings = check_pins(validate(parse(text), file="conf/"), Path.cwd())
    if findings:
        raise InputError(findings)
    if only_print:
        print(text, end="")
        return 0
    writers.write_text(PARAMS, text)
    print(f"params.yaml composed from conf/{''.join(f' {o}' for o in overrides)}; now `dvc repro`")
    return 0
