"""Which fields of a conversation its template does not print, each in a place of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from hashtune.chat.bodies import Layout
from hashtune.chat.marked import Field, Marks, short_of
from hashtune.chat.messages import ASSISTANT
from hashtune.chat.reasoning import with_opening
from hashtune.chat.template import Template
from hashtune.errors import InputError
from hashtune.records import Message

Asked = Callable[[Field], bool]


def lost_fields(
    template: Template, messages: Sequence[Message], layout: Layout
) -> dict[tuple[int, str], Field]:
    """Fields of trained turns and of other roles that are printed nowhere, or less often than they
    are given, by message and path; an answer that is not trained may be shortened as history.

    A field is lost if its mark does not come out. Where the text is not the marked render without
    its marks (the template reads the contents), it is lost if, the longest fields taken out first,
    the text no longer holds it.
    """
    bodies = {body.turn: (body.start, body.end) for body in layout.bodies}
    written = len(messages) - 1 if layout.rebuilt else len(messages)  # the rest is no render

    def asked(field: Field) -> bool:
        in_render = field.index < written
        return in_render and (field.index in bodies or messages[field.index]["role"] != ASSISTANT)

    marks = Marks(messages)
    shown = _render(template, marks, layout)
    if shown is not None:
        seen = {number for number, _ in marks.read(shown, 0)[1]} | marks.broken(shown)
        missed = [f for number, f in enumerate(marks.fields) if number not in seen and asked(f)]
        if missed or _proven(marks, shown, layout, asked):
            return _by_place(missed)
    in_text = short_of([field for field in marks.fields if asked(field)], layout.text)
    lost = {*in_text, *_short_of_bodies(marks.fields, layout)}
    return _by_place(field for field in marks.fields if field in lost)


def _by_place(fields: Iterable[Field]) -> dict[tuple[int, str], Field]:
    return {(field.index, field.path): field for field in fields}


def _render(template: Template, marks: Marks, layout: Layout) -> str | None:
    """As the layout's text was made; None where the template refuses the marked messages."""
    try:
        if layout.rebuilt:
            return template.prompt(marks.messages[:-1])
        return template.render(marks.messages)
    except InputError:
        return None


def _proven(marks: Marks, shown: str, layout: Layout, asked: Asked) -> bool:
    """Whether the text is the render without marks, and each asked field stands before its mark,
    in its body if it has one."""
    bodies = {body.turn: _with_tag(layout.text, body.start, body.end) for body in layout.bodies}
    for spelling in (0, -1):
        text, places = marks.read(shown, spelling)
        end = max((end for _, end in places), default=0)
        if not layout.text.startswith(text[:end]):
            continue
        right = set()
        for number, end in places:
            field = marks.fields[number]
            low, high = bodies.get(field.index, (0, len(text)))
            starts = [
                end - len(way) for way in field.spellings if text.startswith(way, end - len(way))
            ]
            if starts and low <= min(starts) and end <= high:
                right.add(number)
        return all(n in right for n, field in enumerate(marks.fields) if asked(field))
    return False


def _with_tag(text: str, start: int, end: int) -> tuple[int, int]:
    """The body, and before it the opening tag that ends there."""
    return end - len(with_opening(text[:end], start)), end


def _short_of_bodies(fields: Sequence[Field], layout: Layout) -> Iterator[Field]:
    for body in layout.bodies:
        own = [field for field in fields if field.index == body.turn]
        yield from short_of(own, with_opening(layout.text[: body.end], body.start))
