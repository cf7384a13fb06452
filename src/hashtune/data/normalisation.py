"""The declared changes of the texts themselves: line ends, then Unicode form, then whitespace.

With every rule at "none" no text changes. A changed conversation gets the id of its new content.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from hashtune.data.schemas import content_id
from hashtune.records import REASONING, Conversation, Message
from hashtune.spec.schema import Normalise

TEXTS = ("content", *REASONING)
_BLANKS = re.compile(r"[^\S\n]+")
_AROUND_NEWLINE = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")


def newlines_lf(text: str) -> str:
    """Every line end as one \\n."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def collapse(text: str) -> str:
    """No blanks at the ends of text and lines (so no indentation), one blank for a run of them,
    at most one blank line."""
    lines = _AROUND_NEWLINE.sub("\n", _BLANKS.sub(" ", text))
    return _BLANK_LINES.sub("\n\n", lines).strip()


FORMS: dict[tuple[str, str], Callable[[str], str]] = {
    ("newlines", "lf"): newlines_lf,
    ("unicode", "nfc"): lambda text: unicodedata.normalize("NFC", text),
    ("unicode", "nfkc"): lambda text: unicodedata.normalize("NFKC", text),
    ("whitespace", "trim"): str.strip,
    ("whitespace", "collapse"): collapse,
}


def change_text(text: str, rules: Normalise) -> tuple[str, list[str]]:
    """The text as the rules want it, and the names of the rules that changed it."""
    changed = []
    for rule in ("newlines", "unicode", "whitespace"):
        form = FORMS.get((rule, getattr(rules, rule)))
        new = form(text) if form else text
        if new != text:
            changed.append(rule)
        text = new
    return text, changed


def _change_message(message: Message, rules: Normalise, changed: set[str]) -> Message:
    new = dict(message)
    for key in TEXTS:
        if isinstance(message.get(key), str):
            new[key], names = change_text(message[key], rules)
            changed.update(names)
    return new


def change_conversations(
    conversations: Iterable[Conversation], rules: Normalise
) -> tuple[list[Conversation], Counter[str]]:
    """The conversations in their declared form, and how many each rule changed."""
    result: list[Conversation] = []
    counts: Counter[str] = Counter()
    for conversation in conversations:
        changed: set[str] = set()
        messages = [_change_message(m, rules, changed) for m in conversation.messages]
        counts.update(changed)
        if changed:
            conversation = replace(conversation, messages=messages, id=content_id(messages))  # noqa: PLW2901  its new form
        result.append(conversation)
    return result, counts
