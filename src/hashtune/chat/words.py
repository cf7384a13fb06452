"""Ids of a text from those of its words: most words of a data set come again, so each is encoded
once.

The words' ids, one after another, are the text's, because

    1. the backend looks for added tokens first and encodes each stretch between them by itself;
    2. it cuts a stretch into matches of one of EXPRESSIONS. A word ends behind a character that is
       not blank where no match goes on: in each of them a letter is followed by letters only, a
       digit by digits only, what is not blank never by a space, and by a digit only if it is one.
       Nothing looks back. What looks ahead, by one character, is blank, so that it sees no further
       than the end of its own word;
    3. BPE reads each match by itself.

known_words asks a tokenizer for all of this. In words that are not ASCII only spaces cut.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, cycle
from typing import Any

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
LATER = (
    rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXPRESSIONS = (
    rf"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",  # GPT-2
    LATER % r"\p{N}{1,3}",  # Llama 3
    LATER % r"\p{N}",  # Qwen 2
)
SPACED = re.compile(r"(?<=\S)(?= )")
WORD = re.compile(
    r" ?[A-Za-z]+|[0-9]+|[^A-Za-z0-9]*[^A-Za-z0-9\s](?=[ 0-9])"
    r"|[^A-Za-z0-9]*(?:[A-Za-z]+|[0-9]+)|[^A-Za-z0-9]+"
)
LONGEST = 64  # characters of a word that is kept
KEPT = 1 << 16  # words; then it begins anew, so that memory has a bound
Encode = Callable[[str], list[int]]


class Words(dict[str, tuple[int, ...]]):
    """Ids by word, learned on the way.

    Args:
        encode: ids of a text, by the backend.
        added: the tokenizer's added tokens.
    """

    def __init__(self, encode: Encode, added: Iterable[str]) -> None:
        super().__init__()
        longest_first = sorted(added, key=len, reverse=True)
        self._added = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        self._encode = encode

    def ids(self, text: str) -> list[int]:
        """The ids of a text."""
        parts = self._added.split(text)  # every other one is an added token
        words = [[part] if odd else words_of(part) for part, odd in zip(parts, cycle((0, 1)))]
        return list(chain.from_iterable(map(self.__getitem__, chain.from_iterable(words))))

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._encode(word))  # tuples of numbers are no work for the garbage collector
        if len(word) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
            self[word] = ids
        return ids


def words_of(stretch: str) -> list[str]:
    """The words of a text without added tokens; joined they are the text."""
    if stretch.isascii():
        return WORD.findall(stretch)
    parts = SPACED.split(stretch)
    return [word for part in parts for word in (WORD.findall(part) if part.isascii() else [part])]


def known_words(tokenizer: Any, encode: Encode) -> Words | None:
    """Words of a fast tokenizer of transformers; None where the ids of a text may be others than
    those of its words."""
    from tokenizers import models

    backend = tokenizer.backend_tokenizer
    added = tokenizer.added_tokens_decoder.values()
    plain = not any(t.lstrip or t.rstrip or t.single_word or t.normalized for t in added)
    steady = isinstance(backend.model, models.BPE) and not backend.model.dropout
    if not (plain and steady and not backend.encode_special_tokens):
        return None
    if not (_keeps_ascii(backend.normalizer) and _cuts(backend.pre_tokenizer)):
        return None
    return Words(encode, [token.content for token in added if token.content])


def _keeps_ascii(normalizer: Any) -> bool:
    return normalizer is None or _settings(normalizer) == {"type": "NFC"}


def _cuts(pre_tokenizer: Any) -> bool:
    """Whether it cuts by one of the expressions, perhaps after a split at digits, and each stretch
    as if nothing stood before it."""
    if pre_tokenizer is None:
        return False
    settings = _settings(pre_tokenizer)
    *before, last = settings.get("pretokenizers", [settings])
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        return False
    return all(map(_known, before)) and (last["use_regex"] or _splits(before))


def _known(settings: dict[str, Any]) -> bool:
    return settings["type"] == "Digits" or _splits([settings])


def _splits(parts: Sequence[dict[str, Any]]) -> bool:
    wanted = [
        {"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False}
        for e in EXPRESSIONS
    ]
    return any(part in wanted for part in parts)


def _settings(component: Any) -> dict[str, Any]:
    """The settings of a part of a tokenizer, as tokenizer.json holds them."""
    settings: dict[str, Any] = json.loads(component.__getstate__())
    return settings
