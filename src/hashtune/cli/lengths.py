"""What a max_seq_len loses: for the candidates of reports/tokenize.json, or for any number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.cli.outputs import TOKENIZE, require
from hashtune.errors import Finding, InputError
from hashtune.inspection.sheets import Sheet, lengths_sheet

REPORT = Path("reports/tokenize.json")
TABLE = TOKENIZE / "lengths.json"


def lengths(split: str, limits: Sequence[int]) -> Sheet:
    """The distribution of a split, and what the limits lose, or the candidates where none is given.

    Raises:
        InputError: tokenize has not run, or was another version's; a limit is below 1.
    """
    from hashtune.chat.limits import loss, read_distribution

    small = [limit for limit in limits if limit < 1]
    if small:
        fix = "give limits from 1 token"
        text = f"is {', '.join(map(str, small))}, must be at least 1"
        raise InputError(Finding("bad-limit", text, field="--lengths", fix=fix))
    require(REPORT, "tokenize")
    report: dict[str, Any] = writers.read_json(REPORT)[split]
    if "split" not in report:
        fix = "dvc repro tokenize"
        text = "does not say what limits lose when they split"
        raise InputError(Finding("old-report", text, file=str(REPORT), fix=fix))
    require(TABLE, "tokenize")
    found = writers.read_json(TABLE)[split]
    whole, cut = (read_distribution(found[name]) for name in ("drop", "split"))
    if limits:
        rows, parts = ([loss(which, n) for n in sorted(set(limits))] for which in (whole, cut))
        report |= {"limits": rows, "split": {**report["split"], "limits": parts}}
    counts = [more - less for less, more in zip(whole.examples, whole.examples[1:], strict=False)]
    return lengths_sheet(report, split=split, histogram=(whole.lengths, counts))
