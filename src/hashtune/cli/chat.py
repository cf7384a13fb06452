"""hashtune chat: the same conversation answered by base and adapter, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune.cli.base import require_manifest
from hashtune.errors import Finding, InputError
from hashtune.records import Message
from hashtune.spec.load import read_spec
from hashtune.store.manifest import read_manifest

if TYPE_CHECKING:
    from hashtune.evaluation.models import Subject
    from hashtune.spec.schema import Spec


def run(adapter: Path, *, message: str | None, system: str | None) -> int:
    """Answer one message, or read messages from the terminal until an empty line or Ctrl-D."""
    manifest = read_manifest(require_manifest())
    if not adapter.is_dir():
        raise InputError(
            Finding("no-adapter", "does not exist", file=str(adapter), fix="dvc repro train")
        )
    from hashtune.evaluation.models import open_subject

    spec = read_spec("tokenizer", "evaluation", "determinism")
    subject = open_subject(
        manifest,
        adapter,
        spec.tokenizer,
        dtype=spec.evaluation.base_precision,
        threads=spec.determinism.threads,
        root=Path.cwd(),
    )
    start: list[Message] = [{"role": "system", "content": system}] if system else []
    histories = {"base": list(start), "adapter": list(start)}
    if message is not None:
        _turn(subject, spec, histories, message)
        return 0
    print("an empty line ends the conversation")
    while text := _read():
        _turn(subject, spec, histories, text)
    return 0


def _read() -> str:
    try:
        return input("you> ").strip()
    except EOFError:
        return ""


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
        print(f"{name:>8}> {answer}", flush=True)


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
