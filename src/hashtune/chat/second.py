"""The second derivation of an example's text and trained ranges, by marks written into contents.

The marks are rendered once for all messages; where they come out, the fields end. It shares no
helper with bodies.py and at_once.py, so that a fault there disagrees with it; which turns must be
trained, owed.py tells. What both ask are the template and the stops.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from hashtune.chat.messages import normalise
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.records import Message

REWRITES = "the template rewrites the content, so no mark can follow it"
ONE_BY_ONE = 3  # so many prompts are rendered each, always


Places = dict[int, tuple[int, int]]  # first and last mark of a message, in the unmarked text


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
    marks = _Marks(messages)
    marked = template.render([marks.mark(index, dict(m)) for index, m in enumerate(messages)])
    whole = marks.remove(marked)
    if template.ids(whole) != ids:  # a stop is missing, or the template reads the contents
        whole = template.render(messages)
        if marks.remove(marked) != whole:
            marked = template.render(
                [marks.mark(k, dict(m)) if k in turns else m for k, m in enumerate(messages)]
            )
        if marks.remove(marked) != whole:
            marked = template.render([marks.in_arguments(k, m) for k, m in enumerate(messages)])
        if marks.remove(marked) != whole:
            return REWRITES
    places = marks.places(marked)
    places |= _by_name(messages, turns, whole, places)
    if dropped := [turn for turn in turns if turn not in places]:
        return f"the template drops the content of messages[{dropped[0]}]"
    starts = _prompt_ends(template, messages, turns, whole, places)
    if isinstance(starts, str):
        return starts
    limits = _next_places(places, len(messages), len(whole))
    spans = []
    text = whole
    for turn, start in zip(turns, starts, strict=True):
        end = _stop_end(whole, places[turn][1], limits[turn], stops)
        if end is None and turn == len(messages) - 1:
            text = _with_stop(template, whole, stops, ids)
            end = len(text)
        if end is None:
            return f"no stop after the content of messages[{turn}]"
        spans.append((start, end))
    return Expected(text, tuple(spans))


def _by_name(
    messages: Sequence[Message], turns: Sequence[int], whole: str, places: Places
) -> Places:
    """Where calls stand that no mark could follow: the template looks their name up, and they have
    no texts as arguments. Each name is looked for behind the message before it."""
    found: Places = {}
    for turn in turns:
        if turn in places or (turn - 1) not in places:
            continue
        at = [places[turn - 1][1]]
        for call in messages[turn].get("tool_calls") or []:
            name = call.get("function", call)["name"]
            start = whole.find(name, at[-1])
            at += [start + len(name)] if start >= 0 else []
        if len(at) > 1 and len(at) == 1 + len(messages[turn]["tool_calls"]):
            found[turn] = at[1], at[-1]
    return found


def _prompt_ends(
    template: Template,
    messages: Sequence[Message],
    turns: Sequence[int],
    whole: str,
    places: Places,
) -> list[int] | str:
    """How far the prompt of each turn reaches into the text, or why one does not.

    For many turns, the prompts of a few tell what a prompt adds; that is looked for in the others.
    """
    if len(turns) > ONE_BY_ONE:
        known = _by_addition(template, messages, turns, whole, places)
        if known is not None:
            return known
    ends = []
    for turn in turns:
        prompt = _asked(template, messages[:turn])
        if not whole.startswith(prompt):
            return f"the prompt of messages[{turn}] is no start of the text"
        ends.append(len(prompt))
    return ends


def _asked(template: Template, messages: Sequence[Message]) -> str:
    """What inference gives: the template's own prompt, or under as_stored the header of an answer
    as evaluation finds it."""
    if template.stored_header:
        return template.prompt(messages)
    return template.render(messages, add_generation_prompt=True)


def _by_addition(
    template: Template,
    messages: Sequence[Message],
    turns: Sequence[int],
    whole: str,
    places: Places,
) -> list[int] | None:
    """Ends of the prompts, by what the generation prompt adds after each role; None where the few
    that are rendered (first, last and middle turn of each role) disagree with it."""
    asked_after = [messages[turn - 1]["role"] for turn in turns]
    prompts: dict[int, str] = {}
    added: dict[str, str] = {}
    for role in dict.fromkeys(asked_after):
        same = [turn for turn, before in zip(turns, asked_after, strict=True) if before == role]
        for turn in {same[0], same[len(same) // 2], same[-1]}:
            if turn - 1 not in places:
                return None
            prompts[turn] = _asked(template, messages[:turn])
            history = template.render(messages[:turn])
            addition = prompts[turn].removeprefix(history) or prompts[turn][places[turn - 1][1] :]
            if added.setdefault(role, addition) != addition:
                return None
    ends = []
    for turn, role in zip(turns, asked_after, strict=True):
        if turn - 1 not in places:
            return None
        at = whole.find(added[role], places[turn - 1][1], places[turn][0])
        ends.append(at + len(added[role]))
        wanted = prompts.get(turn, whole[: ends[-1]])
        if at < 0 or len(wanted) != ends[-1] or not whole.startswith(wanted):
            return None
    return ends


def _next_places(places: Places, count: int, end: int) -> list[int]:
    """For each message, where the next mark of a later message stands (or the end)."""
    limits = [end] * count
    for index in range(count - 2, -1, -1):
        limits[index] = min(limits[index + 1], places.get(index + 1, (end, end))[0])
    return limits


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
    prompt, content = _asked(template, messages[:-1]), str(messages[-1]["content"])
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
    overlapping = (
        whole + stop[held:]
        for stop in stops.texts
        for held in range(1, len(stop))
        if whole.endswith(stop[:held])
    )
    every = chain(candidates, overlapping)
    return next((text for text in every if template.encode(text) == ids), whole)


class _Marks:
    """Marks written before and after contents and after tool names; absent from the messages."""

    def __init__(self, messages: Sequence[Message]) -> None:
        texts = [text for message in messages for text in _texts(message)]
        self.stem = "zqm"
        self.written: dict[int, int] = {}
        while any(self.stem in text for text in texts):
            self.stem += "q"
        self._pattern = re.compile(f"{self.stem}([0-9]+)z")

    def mark(self, index: int, message: Message) -> Message:
        """The message with marks inside the blanks of its content and behind its tool names."""
        content = message.get("content") or ""
        core = content.strip()
        if core:
            lead, trail = content[: content.index(core)], content[content.index(core) + len(core) :]
            message["content"] = f"{lead}{core}{self._token(index)}{trail}"
        calls = message.get("tool_calls") or []
        if calls:
            message["tool_calls"] = [self._call(index, call) for call in calls]
        self.written[index] = bool(core) + len(calls)
        return message

    def in_arguments(self, index: int, message: Message) -> Message:
        """The message with marks as `mark` writes them, but in a call behind its last argument, if
        that is a text, instead of behind the name: a template may look the name up."""
        plain = {key: value for key, value in message.items() if key != "tool_calls"}
        marked = self.mark(index, plain)
        calls = []
        for call in normalise([message])[0].get("tool_calls", []):
            function = call.get("function", call)
            given = dict(function["arguments"])
            last = next(reversed(given), None)
            if isinstance(given.get(last), str):
                given[last] += self._token(index)
                self.written[index] += 1
            changed = {**function, "arguments": given}
            calls.append({**call, "function": changed} if "function" in call else changed)
        return {**marked, "tool_calls": calls} if calls else marked

    def remove(self, text: str) -> str:
        """The text without marks."""
        return self._pattern.sub("", text)

    def places(self, text: str) -> Places:
        """Where the first and the last mark of each message stand, in the text without marks.

        Further ones were printed by a later message (gpt-oss: the name of the call that a tool
        answers).
        """
        found: dict[int, list[int]] = {}
        removed = 0
        for match in self._pattern.finditer(text):
            found.setdefault(int(match[1]), []).append(match.start() - removed)
            removed += len(match[0])
        return {
            index: (places[0], places[: self.written[index]][-1]) for index, places in found.items()
        }

    def _token(self, index: int) -> str:
        return f"{self.stem}{index}z"

    def _call(self, index: int, call: dict[str, Any]) -> dict[str, Any]:
        nested = "function" in call
        function = call["function"] if nested else call
        marked = {**function, "name": function["name"] + self._token(index)}
        return {**call, "function": marked} if nested else marked


def _texts(message: Message) -> Iterator[str]:
    """Every text of a message, names of fields included; nested values as Python writes them."""
    for name, value in message.items():
        yield name
        yield value if type(value) is str else repr(value)
