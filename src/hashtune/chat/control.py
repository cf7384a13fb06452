"""Control tokens inside contents: they would forge a turn.

By default they are refused. With `tokenizer.special_in_content: escape` they stay as plain text: a
mark inside each of them goes through the template, so that neither the template nor the tokenizer
finds one there, and the ids of the marks are left out. Training and generation share this.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.chat.fields import change_texts, printable
from hashtune.chat.messages import ASSISTANT, normalise
from hashtune.errors import Finding, InputError
from hashtune.records import Message

MARK = "\ufdd0"  # a noncharacter: no text should hold it
Added = Sequence[tuple[str, bool]]  # text of an added token, and whether it is special


def control_tokens(
    messages: Sequence[Message],
    added: Added,
    pattern: re.Pattern[str],
    stops: Collection[str] = (),
) -> list[Finding]:
    """A finding for each control token that a text of a message holds.

    Args:
        messages: their structure is sound, their contents are texts.
        added: the tokenizer's added tokens.
        pattern: finds an added token.
        stops: texts that end a turn.
    """
    found = []
    for index, message in enumerate(messages):
        for path, text in printable(message):
            if not pattern.search(text) and not any(stop in text for stop in stops):
                continue
            tokens = {*_refused(message, added), *stops}
            for token in sorted(token for token in tokens if token in text):
                where = f"messages[{index}].{path}"
                said = f"holds the control token {token!r}"
                fix = "reword it in the data, or set tokenizer.special_in_content to escape"
                found.append(Finding("control-token", said, field=where, fix=fix))
    return found


def escape(
    messages: Sequence[Message], added: Added, pattern: re.Pattern[str]
) -> tuple[list[Message], int]:
    """The messages with a mark inside every control token, and how many messages hold one.

    A control token of one character stays, and is refused: nothing fits inside it.

    Raises:
        InputError: a text holds the mark itself.
    """
    changed, count, found = list(messages), 0, []
    for index, message in enumerate(messages):
        texts = list(printable(message))
        for path, text in texts:
            if MARK in text:
                said = f"holds U+{ord(MARK):04X}, which tokenizer.special_in_content escape needs"
                where = f"messages[{index}].{path}"
                found.append(Finding("control-token", said, field=where, fix="remove it"))
        tokens = [token for token in _refused(message, added) if len(token) > 1]
        if any(pattern.search(text) for _, text in texts) and any(
            token in text for token in tokens for _, text in texts
        ):
            count += 1
            changed[index] = change_texts(normalise([message])[0], _marker(tokens))
    if found:
        raise InputError(found)
    return changed, count


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids, vocabulary pieces and character offsets of a text, marks left out."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


def without_marks(text: str, encoding: Any) -> Encoded:
    """The encoding of a marked text without the tokens of the marks; offsets count the marks.

    Raises:
        InputError: a token holds a mark and more.
    """
    kept = []
    for index, (start, end) in enumerate(encoding.offsets):
        piece = text[start:end]
        if MARK not in piece:
            kept.append(index)
        elif piece != MARK:
            said = f"this tokenizer cannot escape control tokens: {piece!r} is one token"
            raise InputError(Finding("control-token", said, field="tokenizer.special_in_content"))
    return Encoded(
        [encoding.ids[index] for index in kept],
        [encoding.tokens[index] for index in kept],
        [encoding.offsets[index] for index in kept],
    )


def escape_faults(text: str, ids: Sequence[int], tokenizer: Any) -> Iterable[str]:
    """What is wrong with the ids of a marked text: they must hold the added tokens of the text with
    harmless words in place of the escaped tokens, in order, and decode to the text."""
    backend = tokenizer.backend_tokenizer
    decoder = tokenizer.added_tokens_decoder
    added = {token for token, of in decoder.items() if of.content.strip()}
    harmless = re.sub(f".{MARK}", "zq", text, flags=re.DOTALL)
    wanted = [i for i in backend.encode(harmless, add_special_tokens=False).ids if i in added]
    if wanted != [token for token in ids if token in added]:
        yield "an escaped content holds the id of a control token"
    plain = text.replace(MARK, "")
    normal = backend.normalizer.normalize_str(plain) if backend.normalizer else plain
    decoded = backend.decode(list(ids), skip_special_tokens=False)
    if "".join(decoded.split()) not in ("".join(plain.split()), "".join(normal.split())):
        yield "the ids of an escaped content do not decode to it"


def _refused(message: Message, added: Added) -> list[str]:
    """An answer may hold tokens that are not special, such as `<think>`."""
    return [token for token, special in added if special or message["role"] != ASSISTANT]


def _marker(tokens: Sequence[str]) -> Any:
    def mark(text: str) -> str:
        for token in tokens:
            while token in text:  # again: two of them may overlap
                text = text.replace(token, token[0] + MARK + token[1:])
        return text

    return mark
