"""Sheets as text: trained tokens green, or in brackets where there is no colour."""

from collections.abc import Iterable, Sequence

from hashtune.inspection.pieces import Piece
from hashtune.inspection.sheets import Document, Sheet
from hashtune.inspection.visible import visible

TRAINED, DIM, BOLD, END = "\x1b[32m", "\x1b[2m", "\x1b[1m", "\x1b[0m"
OPEN, CLOSE = "⟦", "⟧"  # rarer in texts than other brackets
RULE = "─" * 8


def as_text(sheets: Iterable[Sheet], *, color: bool, ids: bool) -> str:
    """All sheets, one below the other; with `ids` each token is a line of id and text."""
    return "\n".join(_sheet(sheet, color, ids) for sheet in sheets)


def _sheet(sheet: Sheet, color: bool, ids: bool) -> str:
    title = visible(sheet.title)
    lines = [f"{BOLD}{title}{END}" if color else f"{RULE} {title}"]
    lines += [f"  {visible(fact)}" for fact in sheet.facts]
    for document in sheet.documents:
        lines += _document(document, color, ids)
    return "\n".join(lines) + "\n"


def _document(document: Document, color: bool, ids: bool) -> list[str]:
    lines = [f"{RULE} {visible(document.heading)} {RULE}"] if document.heading else []
    if ids:
        return lines + [line for piece in document.pieces for line in _tokens(piece, color)]
    return [*lines, _merged(document.pieces, color)]


def _merged(pieces: Sequence[Piece], color: bool) -> str:
    if color:
        return "".join(_painted(visible(piece.text), piece) for piece in pieces)
    text, inside = "", False
    for piece in pieces:
        if piece.trained != inside:
            text += OPEN if piece.trained else CLOSE
            inside = piece.trained
        text += visible(piece.text)
    return text + (CLOSE if inside else "")


def _painted(text: str, piece: Piece) -> str:
    style = (TRAINED if piece.trained else "") + (
        (BOLD if piece.trained else DIM) if piece.control else ""
    )
    return f"{style}{text}{END}" if style else text


def _tokens(piece: Piece, color: bool) -> Iterable[str]:
    """One line per token; text without ids stays as it is."""
    if not piece.tokens:
        yield visible(piece.text)
    for token, text in piece.tokens:
        shown = visible(text).replace("\n", "")
        mark = " " if color or not piece.trained else "*"
        line = f"{token:>8} {mark} {shown}"
        yield _painted(line, piece) if color else line
