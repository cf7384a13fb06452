"""Length and quality limits of a training row; each has its own reason in the ledger."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from hashtune.errors import Finding
from hashtune.records import TEXT, Conversation, Dropped
from hashtune.spec.schema import Filters

RUN_OF_WORDS = 3
LENGTHS = ("answer_chars", "chars")


def text_of(message: dict[str, Any]) -> str:
    """The content of a message as text, "" for none."""
    content = message.get("content")
    return content if isinstance(content, str) else ""


def last_answer(conversation: Conversation) -> str:
    """The text of the last assistant message."""
    answers = [m for m in conversation.messages if m["role"] == "assistant"]
    return text_of(answers[-1]) if answers else ""


def letter_share(text: str) -> float:
    """Letters and their marks among the visible characters, in [0, 1]."""
    visible = [character for character in text if not character.isspace()]
    letters = sum(unicodedata.category(character)[0] in "LM" for character in visible)
    return letters / len(visible) if visible else 0.0


def repeated_share(parts: Sequence[str]) -> float:
    """Parts that occurred before / all parts, in [0, 1]."""
    return 1.0 - len(set(parts)) / len(parts) if parts else 0.0


def lines_of(text: str) -> list[str]:
    """The lines of a text that are not blank, without blanks at their ends."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def word_runs(text: str) -> list[str]:
    """Every run of 3 words."""
    words = text.split()
    return [" ".join(words[i : i + RUN_OF_WORDS]) for i in range(len(words) - RUN_OF_WORDS + 1)]


def measures(conversation: Conversation) -> dict[str, float]:
    """What the limits of the same name are compared with. An answer without text (a tool call)
    has no measures of its own. Of a plain text the shares are those of the whole."""
    found: dict[str, float] = {}
    if answer := last_answer(conversation):
        found["answer_chars"] = len(answer)
    first = conversation.messages[0]
    if trained := text_of(first) if first["role"] == TEXT else answer:
        found["letter_share"] = letter_share(trained)
        found["repeated_line_share"] = repeated_share(lines_of(trained))
        found["repeated_word_share"] = repeated_share(word_runs(trained))
    found["chars"] = sum(len(text_of(message)) for message in conversation.messages)
    return found


def broken_limit(conversation: Conversation, filters: Filters) -> tuple[str, str] | None:
    """(limit, measure against limit) of the first limit that the row breaks, or None."""
    limits = {name: limit for name, limit in filters.model_dump().items() if limit is not None}
    found = measures(conversation) if limits else {}
    for name, limit in limits.items():
        side, measure = name[:3], found.get(name[4:])
        if measure is None:
            continue
        if side == "min" and measure < limit:
            return name, f"{measure:.4g} is below {limit:.4g}"
        if side == "max" and measure > limit:
            return name, f"{measure:.4g} is above {limit:.4g}"
    return None


def check_limits(filters: Filters) -> list[Finding]:
    """A finding for each pair of limits that no row can meet."""
    limits = filters.model_dump()
    pairs = [(limits[f"min_{name}"], limits[f"max_{name}"], name) for name in LENGTHS]
    return [
        Finding(
            "filters", f"{low} is above max_{name} {high}", field=f"cleaning.filters.min_{name}"
        )
        for low, high, name in pairs
        if low is not None and high is not None and low > high
    ]


def filter_rows(
    conversations: Iterable[Conversation], filters: Filters
) -> tuple[list[Conversation], list[Dropped]]:
    """Drop the rows that break a limit; the reason is the name of the limit."""
    kept, dropped = [], []
    for row in conversations:
        broken = broken_limit(row, filters)
        if broken is None:
            kept.append(row)
        else:
            dropped.append(Dropped(row.id, row.source, row.line, *broken))
    return kept, dropped
