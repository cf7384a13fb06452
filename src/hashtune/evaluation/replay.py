"""Replay: general prompts that the base answers itself, to be mixed into training.

Kept are answers that the base ended by itself and that are not blank: an answer cut at the limit
would teach the model to stop in mid-sentence, or never to stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune.data.messages import Place, check_messages, is_blank
from hashtune.errors import Finding, InputError
from hashtune.evaluation.frozen import Line, read_frozen, repeated_ids
from hashtune.parts import with_text
from hashtune.records import Dropped, Message

if TYPE_CHECKING:
    from hashtune.evaluation.generate import Answer

UNFINISHED, BLANK = "unfinished", "blank"


@dataclass(frozen=True, slots=True)
class ReplayPrompt:
    """A prompt, the messages of which end with the user's turn, and its line in the file."""

    id: str
    line: int
    messages: list[Message]


def load_prompts(uri: str, *, sha256: str | None, root: Path) -> list[ReplayPrompt]:
    """The prompts of a pinned file of lines {"id", "messages"}.

    Raises:
        InputError: every broken line at once (see also frozen.read_frozen).
    """
    lines = read_frozen(uri, sha256=sha256, root=root, field="data.replay")
    findings = repeated_ids(lines, file=uri, seen={})
    for line in lines:
        findings += _findings(line, file=uri)
    if findings:
        raise InputError(findings)
    return [
        ReplayPrompt(value["id"], number, list(map(with_text, value["messages"])))
        for number, value in lines
    ]


def keep_answers(
    prompts: Sequence[ReplayPrompt], answers: "Sequence[Answer]"
) -> tuple[list[dict[str, Any]], list[Dropped]]:
    """(lines of answers.jsonl, ledger): every prompt is in exactly one of the two."""
    kept: list[dict[str, Any]] = []
    dropped: list[Dropped] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        if answer.finished and not is_blank(answer.text):
            turn = {"role": "assistant", "content": answer.text}
            kept.append({"id": prompt.id, "messages": [*prompt.messages, turn]})
            continue
        reason = BLANK if answer.finished else UNFINISHED
        detail = f"{answer.tokens} tokens"
        dropped.append(Dropped(prompt.id, "replay", prompt.line, reason, detail))
    return kept, dropped


def _findings(line: Line, *, file: str) -> list[Finding]:
    """A prompt is sound when it makes a sound conversation once the base has answered."""
    number, value = line
    place = Place(file, number)
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        return [place.finding("prompt", "messages", "is no list of messages, or an empty one")]
    findings = check_messages([*messages, {"role": "assistant", "content": "answer"}], place)
    if not findings and messages[-1]["role"] != "user":
        findings.append(place.finding("prompt", "messages", "the last turn is not the user's"))
    return findings
