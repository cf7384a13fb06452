"""Bodies: the text that inference must write in each trained turn.

For assistant message k: p = prompt(messages[:k]), f = render(messages[:k+1]). The body is the text
of f from the end of p through the first stop at or after the last field printed for the message.
Two renders or more a turn, each of the conversation so far: quadratic. So conversations of many
turns are laid out at_once, and this definition is asked about a few of their turns. So it is under
`last` where a template is unstable: the turns before are history. Quadratic stay `split` and
`as_prompted`, which write each turn's whole prompt again, templates that rewrite contents and are
stable, and what is refused: every turn is asked, to list every finding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from hashtune.chat.at_once import FEW, all_at_once, asked_turns
from hashtune.chat.features import turn_keys
from hashtune.chat.messages import REASONING_FIELDS, trained_turns
from hashtune.chat.mismatch import as_prompted, mismatch_finding
from hashtune.chat.reasoning import continues, left_open
from hashtune.chat.sentinels import after_fields, common_prefix, follower
from hashtune.chat.stops import StopSet
from hashtune.chat.tails import tail
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError
from hashtune.records import Message

Unstable = Literal["error", "split", "last"]
Mismatch = Literal["error", "as_prompted", "as_stored"]


@dataclass(frozen=True, slots=True)
class Body:
    """Characters [start, end) of a layout's text, written by assistant message `turn`."""

    turn: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The text of one example and its bodies; it covers messages[:upto].

    `rebuilt`: the text is prompt, fields and stop (as_prompted), not a render.
    """

    text: str
    bodies: tuple[Body, ...]
    upto: int
    rebuilt: bool = False


def bodies(
    template: Template,
    messages: Sequence[Message],
    stops: StopSet,
    *,
    loss_on: Literal["assistant", "last_assistant"],
    mismatch: Mismatch,
) -> list[Body]:
    """The bodies of one whole render; InputError where the conversation needs several examples."""
    turns = trained_turns(messages, loss_on)
    plan = layouts(template, messages, stops, turns=turns, unstable="error", mismatch=mismatch)
    if len(plan) > 1:
        raise InputError(Finding("several-examples", "each turn needs its own example"))
    return list(plan[0].bodies)


def layouts(
    template: Template,
    messages: Sequence[Message],
    stops: StopSet,
    *,
    turns: Sequence[int],
    unstable: Unstable,
    mismatch: Mismatch,
) -> list[Layout]:
    """The examples of a conversation: one with all turns, or what the policies say.

    Args:
        template: the pinned template.
        messages: the conversation, its structure checked.
        stops: what ends a turn.
        turns: indices of the trained assistant messages, ascending, at least one.
        unstable: what to do when a body is printed differently once more messages follow.
        mismatch: what to do when the prompt is no start of the stored answer.

    Raises:
        InputError: every turn that has no exact body.
    """
    derive = cache(lambda turn: _turn(template, messages, turn, stops, mismatch))
    if len(turns) > FEW:
        exact = partial(_exact, derive)
        if fitting := all_at_once(template, messages, turns, stops, exact):
            text, spans = fitting
            every = [Body(turn, *span) for turn, span in zip(turns, spans, strict=True)]
            return [Layout(text, tuple(every), len(messages))]
        if unstable == "last" and (only := _last(template, messages, turns, derive)):
            return [only]
    single: list[Layout] = []
    found: list[Finding] = []
    for turn in turns:
        try:
            single.append(derive(turn))
        except InputError as error:
            found += error.findings
    if found:  # a message that the template refuses is one fault, however many turns follow it
        raise InputError(list(dict.fromkeys(found)))
    if any(layout.rebuilt for layout in single):
        return single
    last = single[-1]
    whole = _whole(template, messages, last)
    moved = [layout for layout in single if not _starts(whole, layout)]
    everything = tuple(layout.bodies[0] for layout in single)
    if not moved:
        return [Layout(whole, everything, len(messages))]
    if unstable == "split":
        return single
    if unstable == "last" and last not in moved:
        return [Layout(whole, last.bodies, len(messages))]
    raise InputError([_unstable_finding(whole, layout) for layout in moved])


def _last(
    template: Template,
    messages: Sequence[Message],
    turns: Sequence[int],
    derive: Callable[[int], Layout],
) -> Layout | None:
    """The last body alone, where a few turns show that an earlier one is printed differently later
    and the last is not. None where they do not, or one has no exact body: then all are asked.

    Asked are those that all_at_once asks about, and any that reopens a reasoning block.
    """
    try:
        keys = dict(zip(turns, turn_keys(template, messages, turns), strict=True))
        few = asked_turns(turns, keys, template.render(messages))
        reopened = [turn for turn in turns if _reopens(messages[turn])]
        asked = [derive(turn) for turn in sorted({*few, *reopened})]
    except InputError:
        return None
    last = asked[-1]
    whole = _whole(template, messages, last)
    moved = [layout for layout in asked if not _starts(whole, layout)]
    if not moved or last in moved or any(layout.rebuilt for layout in asked):
        return None
    return Layout(whole, last.bodies, len(messages))


def _reopens(message: Message) -> bool:
    texts = [str(message.get(field) or "") for field in ("content", *REASONING_FIELDS)]
    return any(map(left_open, texts))


def _whole(template: Template, messages: Sequence[Message], last: Layout) -> str:
    """The text of all messages; that of the last turn may have a stop that the render lacks."""
    return last.text if last.upto == len(messages) else template.render(messages)


def _exact(derive: Callable[[int], Layout], turn: int) -> tuple[str, int, int]:
    """The per-turn definition's word for all_at_once."""
    layout = derive(turn)
    if layout.rebuilt:
        raise InputError(Finding("rebuilt", "the text is no render"))
    return layout.text, layout.bodies[0].start, layout.bodies[0].end


def _starts(whole: str, layout: Layout) -> bool:
    return whole.startswith(layout.text[: layout.bodies[0].end])


def _turn(
    template: Template, messages: Sequence[Message], turn: int, stops: StopSet, mismatch: Mismatch
) -> Layout:
    """The layout of messages[:turn+1] with its last body."""
    prompt = template.prompt(messages[:turn])
    full, fields_end, closing, after = _closed(template, messages, turn, stops)
    rebuilt = False
    if not continues(prompt, full):
        if mismatch != "as_prompted":
            raise InputError(mismatch_finding(template, messages, turn, prompt, full))
        written = as_prompted(prompt, messages[turn], turn, closing=closing, stops=stops)
        full, fields_end, after = prompt + written, len(prompt + written), ""
        rebuilt = True
    text = full[:fields_end] + closing + after
    body = Body(turn, len(prompt), fields_end + len(closing))
    if body.start > fields_end:
        raise InputError(Finding("no-body", "the prompt covers it", field=f"messages[{turn}]"))
    _check_reasoning(template, messages[:turn], text[: body.end], body)
    return Layout(text, (body,), turn + 1, rebuilt)


def _closed(
    template: Template, messages: Sequence[Message], turn: int, stops: StopSet
) -> tuple[str, int, str, str]:
    """f, the end of its last field, the text from there through the stop, and what follows it.

    Where f prints no stop, it is the next role's header (the real next message's or the one that
    this kind of turn asks for), else the first declared stop.
    """
    before, message = messages[:turn], messages[turn]
    full = template.render(messages[: turn + 1])
    after = tail(template, before, message, full)
    if not full.endswith(after):
        text = f"the text after the answer depends on the answer, expected {after!r}"
        raise InputError(Finding("turn-end", text, field=f"messages[{turn}]"))
    fields_end = len(full) - len(after)
    if stop := stops.first(after):
        return full, fields_end, after[: stop[1]], after[stop[1] :]
    region = _next_header(template, messages, turn)
    if stop := stops.first(region):
        return full, fields_end, after + _beyond(after, region[: stop[1]], stop[0]), ""
    if stops.declared:
        return full, fields_end, stops.declared[0], ""
    text = (
        f"no end-of-turn token after the last assistant content; the text ends with "
        f"{full[-24:]!r}, expected one of {list(stops.texts)}"
    )
    fix = "declare the text that ends a turn in tokenizer.stops or tokenizer.added_tokens"
    raise InputError(Finding("no-stop", text, field=f"messages[{turn}]", fix=fix))


def _beyond(tail: str, region: str, stop: int) -> str:
    """What follows the tail of the turn in a region that ends with a stop (from `stop` on).

    As history a turn may be printed otherwise (Apriel numbers its calls): then it is what follows
    the longest end of the tail.
    """
    if region.startswith(tail):
        return region[len(tail) :]
    ends = (tail[cut:] for cut in range(len(tail)))
    end = next((end for end in ends if end in region[:stop]), None)
    return region[region.rindex(end, 0, stop) + len(end) :] if end else region[stop:]


def _next_header(template: Template, messages: Sequence[Message], turn: int) -> str:
    try:
        return after_fields(
            template, messages[:turn], messages[turn], following=follower(messages, turn)
        )
    except InputError:  # the template takes no such message: then there is no header to train
        return ""


def _check_reasoning(template: Template, before: Sequence[Message], text: str, body: Body) -> None:
    """A block opened by the generation prompt or the body must be closed before the stop."""
    if left_open(text) is None:
        return
    history = template.render(before)
    own = text[common_prefix(history, text[: body.start]) :]
    if opening := left_open(own):
        message = f"the reasoning block {opening!r} is opened and never closed before the stop"
        fix = "give the reasoning, or pin template_kwargs that open no block"
        where = f"messages[{body.turn}].content"
        raise InputError(Finding("open-reasoning", message, field=where, fix=fix))


def _unstable_finding(whole: str, layout: Layout) -> Finding:
    body = layout.bodies[0]
    at = common_prefix(whole, layout.text[: body.end])
    return Finding(
        "unstable",
        f"not prefix-stable at messages[{body.turn}] (assistant): after "
        f"{whole[max(0, at - 24) : at]!r} inference sees {layout.text[at : at + 24]!r}, "
        f"the whole conversation has {whole[at : at + 24]!r}",
        field=f"messages[{body.turn}]",
        fix="set tokenizer.unstable to split (one example per turn) or last, or pin other kwargs",
    )
