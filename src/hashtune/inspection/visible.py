"""Text of data and models on a terminal or page: nothing hidden, nothing obeyed.

Apart from what shows sheets, so that a change there is none of a stage that prints a text.
"""

import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # categories that draw nothing


def visible(text: str) -> str:
    """Text that is safe to print and hides nothing: line ends as a mark and a line end, tabs as a
    mark, other characters without a shape (escape sequences, direction marks) as their number."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character == "\n":
        return "⏎\n"
    if character == "\t":
        return "⇥"
    category = unicodedata.category(character)
    if category in HIDDEN or (category == "Zs" and character != " "):
        number = ord(character)
        return f"\\x{number:02x}" if number < 0x100 else f"\\u{{{number:04x}}}"
    return character


def in_a_line(text: str, *, most: int) -> str:
    """The first `most` characters as one line, each line end as a mark; what is left out is
    counted."""
    cut = visible(text[:most]).replace("\n", " ").rstrip(" ")
    return cut if len(text) <= most else f"{cut} ... {len(text) - most} more characters"
