"""Charts as SVG text: no script, nothing loaded, readable in print and by a screen reader."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 14, 36
ROW = 26  # height of a row of bars or intervals
NAMES = 200  # width of their labels
DASHES = ("", "6 4", "2 3", "10 4 2 4", "1 4")  # so that series differ without colour
TICKS = 4
MARK = 14  # between the words of two marks, so that close ones can be read


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name and (x, y) points in x order."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at x with words."""

    x: float
    words: str


@dataclass(frozen=True, slots=True)
class Span:
    """A value with its bounds, and the limit that it stands against (None: none)."""

    name: str
    point: float
    lower: float
    upper: float
    limit: float | None = None


def line_chart(
    title: str, series: Sequence[Series], *, x: str, y: str, marks: Sequence[Mark] = ()
) -> str:
    """Lines over a common x axis; empty text when there is no point."""
    points = [point for line in series for point in line.points]
    if not points:
        return ""
    left, right = _range(point[0] for point in points)
    low, high = _range(point[1] for point in points)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: tuple[float, float]) -> str:
        across = LEFT + (point[0] - left) / (right - left) * width
        up = TOP + (high - point[1]) / (high - low) * height
        return f"{across:.1f},{up:.1f}"

    body = list(_grid(low, high, left, right))
    for number, line in enumerate(series):
        kind = f'class="s{number % len(DASHES)}" stroke-dasharray="{DASHES[number % len(DASHES)]}"'
        body.append(f'<polyline {kind} points="{" ".join(map(place, line.points))}"/>')
        if len(line.points) == 1:
            across, up = place(line.points[0]).split(",")
            body.append(f'<circle class="s{number % len(DASHES)}" cx="{across}" cy="{up}" r="3"/>')
    for place_of, mark in enumerate(marks):
        across = place((mark.x, high)).split(",")[0]
        body.append(
            f'<line class="mark" x1="{across}" x2="{across}" y1="{TOP}" y2="{TOP + height}"/>'
        )
        late = float(across) > WIDTH / 2  # words stand on the side where there is room
        body.append(
            _text(
                float(across) + (-4 if late else 4),
                TOP + 10 + MARK * place_of,
                mark.words,
                anchor="end" if late else "start",
            )
        )
    body.append(_text(WIDTH - RIGHT, HEIGHT - 4, x, anchor="end"))
    body.append(_text(LEFT, TOP - 4, y))
    keys = ", ".join(f"{line.name} ({_word(number)})" for number, line in enumerate(series))
    return _figure(title, HEIGHT, body, caption=f"{title}: {keys}")


def bar_chart(title: str, bars: Sequence[tuple[str, float]], *, unit: str) -> str:
    """Horizontal bars from zero, each with its value; empty text without bars."""
    if not bars:
        return ""
    most = max(value for _, value in bars) or 1.0
    body = []
    for number, (name, value) in enumerate(bars):
        top = TOP + number * ROW
        length = max(0.0, value / most) * (WIDTH - NAMES - 110)
        body.append(_text(NAMES - 8, top + 14, name, anchor="end"))
        body.append(f'<rect x="{NAMES}" y="{top + 3}" width="{length:.1f}" height="{ROW - 10}"/>')
        body.append(_text(NAMES + length + 6, top + 14, f"{value:.4g} {unit}"))
    return _figure(title, TOP * 2 + ROW * len(bars), body)


def interval_chart(title: str, spans: Sequence[Span]) -> str:
    """A dot with a whisker for each row, zero and limits as lines; empty text without rows."""
    if not spans:
        return ""
    limits = [span.limit for span in spans if span.limit is not None]
    ends = [end for span in spans for end in (span.lower, span.upper)]
    low, high = _range([0.0, *ends, *limits])
    height = TOP * 2 + ROW * len(spans)

    def across(value: float) -> float:
        return NAMES + (value - low) / (high - low) * (WIDTH - NAMES - 90)

    zero = across(0.0)
    body = [f'<line class="zero" x1="{zero:.1f}" x2="{zero:.1f}" y1="4" y2="{height - 4}"/>']
    for number, span in enumerate(spans):
        middle = TOP + number * ROW + ROW / 2
        ends_at = f'x1="{across(span.lower):.1f}" x2="{across(span.upper):.1f}"'
        body.append(_text(NAMES - 8, middle + 4, span.name, anchor="end"))
        body.append(f'<line class="whisker" {ends_at} y1="{middle}" y2="{middle}"/>')
        body.append(f'<circle cx="{across(span.point):.1f}" cy="{middle}" r="4"/>')
        if span.limit is not None:
            at = across(span.limit)
            body.append(
                f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}"'
                f' y1="{middle - 9}" y2="{middle + 9}"/>'
            )
        body.append(_text(WIDTH - 4, middle + 4, f"{span.point:+.3f}", anchor="end"))
    return _figure(title, height, body)


def _figure(title: str, height: float, body: Iterable[str], caption: str | None = None) -> str:
    inside = "\n".join(body)
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n{inside}\n</svg>"
        f"<figcaption>{escape(caption or title)}</figcaption></figure>\n"
    )


def _grid(low: float, high: float, left: float, right: float) -> Iterator[str]:
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    for tick in range(TICKS + 1):
        share = tick / TICKS
        up, across = TOP + (1 - share) * height, LEFT + share * width
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT + width}" y1="{up:.1f}" y2="{up:.1f}"/>'
        yield _text(LEFT - 6, up + 4, f"{low + share * (high - low):.3g}", anchor="end")
        yield _text(across, TOP + height + 16, f"{left + share * (right - left):.4g}", "middle")


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Smallest and largest, apart even when all are equal."""
    found = list(values)
    low, high = min(found), max(found)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _word(number: int) -> str:
    return ("line", "dashes", "dots", "dash and dot", "wide dots")[number % len(DASHES)]
