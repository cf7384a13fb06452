"""hashtune judge: a blind sheet of base and adapter answers, and what the judge said of them."""

import argparse
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.evaluation.judgement import Item, Score, choose, read_sheet, sheet
from hashtune.report.runs import read_run
from hashtune.report.sources import Workspace

FOLDER = Path("build/judge")
SHEET, KEY = FOLDER / "sheet.csv", FOLDER / "key.json"
REPORT = Path("reports/judgement.json")
LEVEL = 0.05


def run(arguments: argparse.Namespace) -> int:
    """Export a sheet, or score the one that is named."""
    return _export(arguments) if arguments.sheet is None else _score(Path(arguments.sheet))


def _export(arguments: argparse.Namespace) -> int:
    """Write the sheet and its key; a sheet that is being judged is not written over."""
    found = read_run(Workspace(Path.cwd()))
    if not found.task:
        message = "the answers of base and adapter on the test items are not there"
        raise InputError(Finding("no-answers", message, file="build/evaluate", fix="dvc repro"))
    if SHEET.exists() and not arguments.again:
        message, fix = "is there already, maybe judged in part", "--again writes a new one"
        raise InputError(Finding("sheet-exists", message, file=str(SHEET), fix=fix))
    items = [Item(pair.id, pair.question, pair.base, pair.adapter) for pair in found.task]
    chosen = choose(items, most=arguments.items, seed=arguments.seed)
    text, key = sheet(chosen, seed=arguments.seed)
    key["adapter_sha256"] = found.figure("train", "adapter_sha256")
    writers.write_json(KEY, key)
    writers.write_bytes(SHEET, text.encode("utf-8-sig"))  # spreadsheets take it for UTF-8 then
    print(f"{len(chosen)} items in {SHEET}: fill in `better` with 1, 2 or =")
    print(f"which answer is whose stands in {KEY}; then `hashtune judge score {SHEET}`")
    return 0


def _score(file: Path) -> int:
    """Score a judged sheet into reports/judgement.json; no part of the gate's verdict."""
    for needed, fix in ((file, "name the judged sheet"), (KEY, "hashtune judge export")):
        if not needed.is_file():
            raise InputError(Finding("no-sheet", "does not exist", file=str(needed), fix=fix))
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        fix = "save it as CSV in UTF-8"
        raise InputError(Finding("not-utf8", "is no UTF-8", file=str(file), fix=fix)) from error
    key = _key()
    found = read_sheet(text, key, file=str(file))
    writers.write_json(
        REPORT,
        {
            "adapter_sha256": key["adapter_sha256"],
            "sheet_sha256": writers.sha256_file(file),
            "items": found.items,
            "won": found.won,
            "lost": found.lost,
            "ties": found.ties,
            "chance": found.chance,
        },
    )
    print(words(found))
    print(f"written to {REPORT}")
    return 0


def _key() -> dict[str, Any]:
    """The key as `judgement.sheet` made it, with the adapter's hash.

    Raises:
        InputError: it was edited or cut.
    """
    try:
        key = writers.read_json(KEY)
    except ValueError:
        key = None
    items = key.get("items") if isinstance(key, dict) else None
    whole = isinstance(items, dict) and all(
        isinstance(of, dict) and of.get("adapter") in (1, 2) and isinstance(of.get("sha256"), str)
        for of in items.values()
    )
    if not whole or "adapter_sha256" not in key:
        message, fix = "is not the key that was exported", "hashtune judge export --again"
        raise InputError(Finding("judge-key", message, file=str(KEY), fix=fix))
    return dict(key)


def words(found: Score) -> str:
    """The result in a sentence."""
    split = f"the adapter won {found.won}, lost {found.lost}, {found.ties} ties"
    if found.chance >= LEVEL:
        return f"{split}: no difference can be told (sign test p = {found.chance:.3g})"
    better = "better" if found.won > found.lost else "worse"
    return f"{split}: the adapter is judged {better} (sign test p = {found.chance:.3g})"
