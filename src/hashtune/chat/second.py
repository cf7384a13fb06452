"""The second derivation of an example's text and trained ranges, by marks written into contents.

The marks are rendered once for all messages; where they come out, the fields end. It shares no
helper with bodies.py, so that a fault there disagrees with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.records import Message


@dataclass(frozen=True, slots=True)
class Expected:
    """What an example must be: its text, and the text range of each trained turn."""

    text: str
    spans: tuple[tuple[int, int], ...]


def expect(
    template: Template,
    messages: Sequence[Message],
    turns: Sequence[int],
    stops: StopSet,
    ids: list[int],
) -> Expected | str:
    """Text and ranges from one marked render of all messages, or why there are none."""
    whole = template.render(messages)
    marks = _Marks(messages)
    marked = template.render([marks.mark(index, dict(m)) for index, m in enumerate(messages)])
    if marks.remove(marked) != whole:
        marked = template.render(
            [marks.mark(k, dict(m)) if k in turns else m for k, m in enumerate(messages)]
        )
    if marks.remove(marked) != whole:
        return "the template rewrites the content, so no mark can follow it"
    places = marks.places(marked)
    spans = []
    text = whole
    for turn in turns:
        ends = [place for index, place in places if index == turn]
        if not ends:
            return f"the template drops the content of messages[{turn}]"
        prompt = template.prompt(messages[:turn])
        if not whole.startswith(prompt):
            return f"the prompt of messages[{turn}] is no start of the text"
        limit = min((place for index, place in places if index > turn), default=len(whole))
        end = _stop_end(whole, max(ends), limit, stops)
        if end is None and turn == len(messages) - 1:
            text = _with_stop(template, whole, stops, ids)
            end = len(text)
        if end is None:
            return f"no stop after the content of messages[{turn}]"
        spans.append((len(prompt), end))
    return Expected(text, tuple(spans))


def _stop_end(text: str, start: int, limit: int, stops: StopSet) -> int | None:
    hits = [(text.find(stop, start, limit), -len(stop)) for stop in stops.texts]
    found = [hit for hit in hits if hit[0] >= 0]
    return min(found)[0] - min(found)[1] if found else None


def expect_rebuilt(
    template: Template,
    messages: Sequence[Message],
    turns: Sequence[int],
    stops: StopSet,
    ids: list[int],
) -> Expected | str:
    """Prompt, content (perhaps without the opening tag that the prompt printed) and a stop."""
    prompt, content = template.prompt(messages[:-1]), str(messages[-1]["content"])
    tag = prompt.rstrip()[prompt.rstrip().rfind("<") :]
    bare = content.lstrip().removeprefix(tag).lstrip("\n")
    for written in (content, bare):
        for blank in ("", " ", "\n"):
            for stop in stops.texts:
                text = prompt + written + blank + stop
                if template.encode(text) == ids:
                    return Expected(text, ((len(prompt), len(text)),))
    return "the ids are not those of prompt, content and stop"


def _with_stop(template: Template, whole: str, stops: StopSet, ids: list[int]) -> str:
    """The render with the stop that the template left out after the last answer."""
    bases = dict.fromkeys((whole, whole.rstrip()))
    candidates = (
        base + blank + stop for base in bases for blank in ("", "\n", " ") for stop in stops.texts
    )
    return next((text for text in candidates if template.encode(text) == ids), whole)


class _Marks:
    """Marks written before and after contents and after tool names; absent from the messages."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.stem = "zqm"
        while self.stem in repr(messages):
            self.stem += "q"
        self.count = 0

    def mark(self, index: int, message: Message) -> Message:
        """The message with marks inside the blanks of its content and behind its tool names."""
        content = message.get("content") or ""
        core = content.strip()
        self.count = max(self.count, index + 1)
        if core:
            lead, trail = content[: content.index(core)], content[content.index(core) + len(core) :]
            message["content"] = f"{lead}{core}{self._token(index)}{trail}"
        if message.get("tool_calls"):
            message["tool_calls"] = [self._call(index, call) for call in message["tool_calls"]]
        return message

    def remove(self, text: str) -> str:
        """The text without marks."""
        for index in range(self.count):
            text = text.replace(self._token(index), "")
        return text

    def places(self, text: str) -> list[tuple[int, int]]:
        """(message index, position in the text without marks) of every mark, in order."""
        found = []
        for index in range(self.count):
            pieces = text.split(self._token(index))[:-1]
            lengths = [len(self.remove(piece)) for piece in pieces]
            found += [(index, sum(lengths[: n + 1])) for n in range(len(lengths))]
        return sorted(found, key=lambda place: place[1])

    def _token(self, index: int) -> str:
        return f"{self.stem}{index}z"

    def _call(self, index: int, call: dict[str, Any]) -> dict[str, Any]:
        if "function" in call:
            return {**call, "function": self._call(index, call["function"])}
        return {**call, "name": call["name"] + self._token(index)}
