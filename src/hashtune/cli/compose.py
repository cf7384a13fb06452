"""hashtune compose: the bytes `dvc exp run` would write to params.yaml, checked before writing."""

import argparse
from pathlib import Path

from hashtune import writers
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import PARAMS
from hashtune.spec.origins import checked


def run(arguments: argparse.Namespace) -> int:
    """Compose, validate, write params.yaml (or print it). A refused spec changes nothing."""
    overrides = arguments.overrides
    text = compose(Path.cwd(), overrides)
    checked(parse(text), Path.cwd(), overrides)
    if arguments.print:
        print(text, end="")
        return 0
    writers.write_text(PARAMS, text)
    print(f"params.yaml composed from conf/{''.join(f' {o}' for o in overrides)}; now `dvc repro`")
    return 0
