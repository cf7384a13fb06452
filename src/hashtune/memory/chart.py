"""Bars of text: what each bucket takes of a machine's memory, a line a bucket, the largest first.

    weights      #####################...................   43.72 GB   52 %

A full bar is all the memory there is, or all that is needed where that is more. Shares are of the
memory there is.
"""

from collections.abc import Mapping

GB = 1e9
WIDTH = 40
ASCII, BLOCKS = "#.", "█░"
RED, GREEN, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


def chart(
    buckets: Mapping[str, int], *, available: int, marks: str = ASCII, color: bool = False
) -> list[str]:
    """The lines, and a last one for the sum. `marks` are the characters of a bar's filled and empty
    part (ASCII, BLOCKS); `color`: the last line green where it fits, red where not (ANSI). Buckets
    of 0 bytes are left out."""
    needed = sum(buckets.values())
    drawn = sorted(buckets.items(), key=lambda item: (-item[1], item[0]))
    rows = [(name, count) for name, count in drawn if count] + [("needed", needed)]
    label = max(len(name) for name, _ in rows)
    whole = max(needed, available)
    lines = [
        f"{name:<{label}}  {_bar(count / whole, marks)}"
        f" {count / GB:8.2f} GB {count / available:5.0%}"
        for name, count in rows
    ]
    if color:
        lines[-1] = f"{GREEN if needed <= available else RED}{lines[-1]}{PLAIN}"
    return lines


def _bar(share: float, marks: str) -> str:
    """Half a mark and more is drawn."""
    filled = int(share * WIDTH + 0.5)
    return marks[0] * filled + marks[1] * (WIDTH - filled)
