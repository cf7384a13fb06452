"""Batches that were answered before a stage was killed, so that the next run goes on after them.

    $HASHTUNE_HOME/answers/<key>/<sha256 of the batch>.json     {"sha256": ..., "value": [...]}

The key holds all that decides an answer's bits: code and libraries of the stage, base, adapter and
settings; the batch its token ids and how it is decoded. A file appears whole or not at all; one
whose hash does not fit is answered again. The folder is removed when the stage has its outputs; a
second process at the same batches goes on without it.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import writers
from hashtune.store.loader import home

if TYPE_CHECKING:
    from hashtune.spec.schema import Spec


class Kept:
    """The kept batches of one stage over one model.

    `found` counts those that were not answered again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found = 0

    def batch(self, what: object, make: Callable[[], list[Any]]) -> list[Any]:
        """The value of a batch: read, or made and kept.

        Args:
            what: JSON data that tells this batch from every other one under the same key.
            make: gives the value, a list of JSON data.
        """
        name = _sha256(what)
        file = self.folder / f"{name}.json"
        value = _read(file)
        if value is not None:
            self.found += 1
            return value
        value = make()
        with contextlib.suppress(FileNotFoundError):  # another process ended and took the folder
            writers.write_json(file, {"sha256": _sha256(value), "value": value})
        return value


def kept_answers(stage: str, spec: "Spec", *, model: Iterable[Path]) -> Kept | None:
    """Where this stage keeps its batches; None where `code` has not recorded the stage's code.

    Args:
        stage: its name.
        spec: its sections tokenizer, evaluation and determinism.
        model: files that decide the model, counted by name and content.
    """
    code = Path("build/code") / f"{stage}.json"
    if not code.is_file():
        return None
    files = sorted({code, *model})
    hashes = {file.as_posix(): writers.sha256_file(file) for file in files}
    settings = {
        "tokenizer": spec.tokenizer.model_dump(mode="json"),
        "engine": spec.evaluation.engine,
        "precision": spec.evaluation.base_precision,
        "threads": spec.determinism.threads,
    }
    key = _sha256({"stage": stage, "files": hashes, "settings": settings})
    return Kept(home() / "answers" / key)


def files_of(folder: Path) -> list[Path]:
    """The files below a folder, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def speed(tokens: int, seconds: float, kept: Kept | None) -> dict[str, Any]:
    """What a machine report says of answering; with kept batches no rate is known."""
    if kept is not None and kept.found:
        return {"seconds": seconds, "new_tokens": tokens, "kept_batches": kept.found}
    return {"seconds": seconds, "new_tokens": tokens, "new_tokens_per_second": tokens / seconds}


def finish(kept: Kept | None) -> None:
    """Forget the batches: the stage has written its outputs. Says how many were not made again."""
    if kept is None:
        return
    if kept.found:
        print(f"  {kept.found} batches were kept from a run that was stopped", flush=True)
    shutil.rmtree(kept.folder, ignore_errors=True)


def _read(file: Path) -> list[Any] | None:
    """The kept value, or None when there is none or its bytes are not those that were written."""
    if not file.is_file():
        return None
    try:
        kept = writers.read_json(file)
    except (ValueError, FileNotFoundError):
        return None
    whole = isinstance(kept, dict) and kept.get("sha256") == _sha256(kept.get("value"))
    return kept["value"] if whole else None


def _sha256(value: object) -> str:
    return writers.sha256_bytes(writers.canonical_json(value, indent=None).encode())
