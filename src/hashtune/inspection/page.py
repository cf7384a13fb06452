"""Sheets as one self-contained HTML page: no script, nothing loaded, all data escaped."""

from collections.abc import Iterable
from html import escape

from hashtune.inspection.pieces import Piece
from hashtune.inspection.sheets import Document, Sheet
from hashtune.inspection.visible import visible

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>hashtune inspect</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
       color: #222; background: #fff }
h2 { font-size: 1.05em; margin: 2em 0 .3em } h3 { font-size: .9em; margin: 1em 0 .2em; color: #555 }
p { margin: 0; color: #555; white-space: pre-wrap; font-family: monospace }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; padding: .6em;
      margin: .3em 0 }
.t { background: #bfe8c5 } .c { color: #777; font-style: italic } .t.c { color: #14602a }
small { color: #888 }
</style></head><body>
<h1>hashtune inspect</h1>
<p><span class="t">trained</span> <span class="c">control token</span>; point at a token for its id
</p>
"""


def as_page(sheets: Iterable[Sheet], *, ids: bool) -> str:
    """The page; with `ids` each token's id stands behind it."""
    return HEAD + "".join(_sheet(sheet, ids) for sheet in sheets) + "</body></html>\n"


def _sheet(sheet: Sheet, ids: bool) -> str:
    facts = "".join(f"<p>{_safe(fact)}</p>\n" for fact in sheet.facts)
    parts = "".join(_document(document, ids) for document in sheet.documents)
    return f"<h2>{_safe(sheet.title)}</h2>\n{facts}{parts}"


def _document(document: Document, ids: bool) -> str:
    heading = f"<h3>{_safe(document.heading)}</h3>\n" if document.heading else ""
    return f"{heading}<pre>{''.join(_piece(piece, ids) for piece in document.pieces)}</pre>\n"


def _piece(piece: Piece, ids: bool) -> str:
    names = [name for name, on in (("t", piece.trained), ("c", piece.control)) if on]
    style = f' class="{" ".join(names)}"' if names else ""
    if "".join(text for _, text in piece.tokens) != piece.text:  # parts of characters, or no tokens
        small = "".join(f"<small>{token}</small>" for token, _ in piece.tokens) if ids else ""
        return f"<span{style}>{_safe(piece.text)}{small}</span>"
    return "".join(
        f'<span{style} title="{token}">{_safe(text)}{f"<small>{token}</small>" if ids else ""}'
        "</span>"
        for token, text in piece.tokens
    )


def _safe(text: str) -> str:
    return escape(visible(text), quote=True)
