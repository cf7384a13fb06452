"""hashtune chat: the same conversation answered by base and adapter, side by side.

Under full fine-tuning there is no adapter: the second voice is the base with trained weights.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune.cli.base import require_manifest
from hashtune.cli.streams import harmless
from hashtune.errors import Finding, InputError
from hashtune.lineage.trusted import refusals
from hashtune.records import Message
from hashtune.spec.load import read_spec
from hashtune.spec.methods import FULL, FULL_FILES, PEFT_FILES, adapter_files
from hashtune.store.manifest import read_manifest

if TYPE_CHECKING:
    from hashtune.evaluation.models import Subject
    from hashtune.spec.schema import Spec


def run(arguments: argparse.Namespace) -> int:
    """Answer one message, or read messages from the terminal until an empty line or Ctrl-D."""
    adapter, message, system = Path(arguments.adapter), arguments.message, arguments.system
    manifest = read_manifest(require_manifest())
    spec = read_spec("tokenizer", "evaluation", "determinism", "method")
    if findings := [*_unreadable(message, system), *_missing(adapter, spec.method.type)]:
        raise InputError(findings)
    if findings := refusals(adapter, Path.cwd(), unreleased=arguments.unreleased):
        raise InputError(findings)
    from hashtune.evaluation.models import open_subject

    subject = open_subject(
        manifest,
        adapter,
        spec.tokenizer,
        dtype=spec.evaluation.base_precision,
        threads=spec.determinism.threads,
        root=Path.cwd(),
    )
    start: list[Message] = [{"role": "system", "content": system}] if system else []
    trained = "adapter" if _has_all(adapter, PEFT_FILES) else "trained"
    histories = {"base": list(start), trained: list(start)}
    if message is not None:
        _turn(subject, spec, histories, message)
        return 0
    print("an empty line ends the conversation")
    while text := _read():
        _turn(subject, spec, histories, text)
    return 0


def _missing(folder: Path, kind: str) -> Iterator[Finding]:
    """What the folder lacks of what training with this method leaves; one that another method left
    is as good."""
    if _has_all(folder, PEFT_FILES) or (folder / FULL_FILES[0]).is_file():
        return
    what = "trained weights" if kind == FULL else "an adapter"
    fix = f"dvc repro train, or name a folder that holds {what}"
    missing = [folder / name for name in adapter_files(kind) if not (folder / name).is_file()]
    for file in missing if folder.is_dir() else [folder]:
        yield Finding("no-adapter", "does not exist", file=str(file), fix=fix)


def _has_all(folder: Path, names: Sequence[str]) -> bool:
    return all((folder / name).is_file() for name in names)


def _unreadable(message: str | None, system: str | None) -> Iterator[Finding]:
    """Bytes that the shell passed and that are no text reach Python as lone surrogates."""
    for field, text in (("message", message), ("--system", system)):
        if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
            fix = "write it in UTF-8"
            yield Finding("not-utf8", "is no text in UTF-8", field=field, fix=fix)


def _read() -> str:
    try:
        return input("you> ").strip()
    except EOFError:
        return ""
    except UnicodeDecodeError as error:
        fix = "write it in UTF-8"
        raise InputError(
            Finding("not-utf8", "is no text in UTF-8", field="you", fix=fix)
        ) from error


def _turn(
    subject: "Subject", spec: "Spec", histories: dict[str, list[Message]], message: str
) -> None:
    """Each side continues its own history."""
    for name, history in histories.items():
        history.append({"role": "user", "content": message})
        if name == "base":
            with subject.model.disable_adapter():
                answer = _answer(subject, spec, history)
        else:
            answer = _answer(subject, spec, history)
        history.append({"role": "assistant", "content": answer})
        print(f"{name:>8}> {harmless(answer)}", flush=True)


def _answer(subject: "Subject", spec: "Spec", history: list[Message]) -> str:
    from hashtune.evaluation.generate import generate_answers

    answers = generate_answers(
        subject.model,
        subject.template,
        [history],
        stop_ids=subject.stop_ids,
        max_new_tokens=spec.evaluation.max_new_tokens,
        batch_size=1,
        progress=_silent,
    )
    return answers[0].text


def _silent(items: Any, *, total: int, label: str) -> Any:
    return iter(items)
