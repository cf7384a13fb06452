"""Ids of a text by words: the same as of the whole, and only where that is sure."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers
from tokenizers import pre_tokenizers as pre

from hashtune.chat import template as template_module
from hashtune.chat import words
from hashtune.chat.template import Template
from hashtune.chat.words import EXPRESSIONS, Words, known_words, words_of

BARE = pre.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre.ByteLevel(add_prefix_space=False, use_regex=True)


def by(expression: str) -> Any:
    return pre.Sequence([pre.Split(Regex(expression), "isolated"), BARE])


CUTTERS = [
    GPT2,
    pre.Sequence([pre.Digits(individual_digits=True), GPT2]),
    pre.Sequence([pre.Digits(individual_digits=False), GPT2]),
    *map(by, EXPRESSIONS),
]
BITS = [" ", "  ", "\n", "\n\n", " \n", "\r\n", "\t", "\x0b", "\x1c", "\x85", "\u00a0", "\u2028"]
BITS += ["a", "Zoe", "x5y", "12", "3456", "$ 16", "<<3*4=12>>12", ".", ", ", "!\n", "# ", "_"]
BITS += ["'", "I'll", "'S", "'ve", "'re5", "é", "naïve café", "e\u0301", "字", "🙂", "²", "5²", "ſ"]


def pieces(cutter: Any, text: str) -> list[str]:
    return [piece for piece, _ in cutter.pre_tokenize_str(text)]


def test_words_worked_by_hand() -> None:
    text = "She said, 'hi':\n<<16-3=13>>13  $ 5x.\n"
    prose, sums = words_of(text)[:4], words_of(text)[4:]
    assert prose == ["She", " said", ",", " 'hi"]
    assert sums[:8] == ["':\n<<", "16", "-", "3", "=", "13", ">>", "13"]
    assert sums[8:] == ["  $", " 5", "x", ".\n"]
    assert words_of("ein café um 8") == ["ein", " café", " um", " 8"]
    assert words_of("") == []


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(BITS) | st.text(max_size=3), max_size=12).map("".join))
def test_words_are_cut_as_the_whole_is(text: str) -> None:
    found = words_of(text)
    assert "".join(found) == text
    for cutter in CUTTERS:
        assert [p for word in found for p in pieces(cutter, word)] == pieces(cutter, text)


@pytest.mark.parametrize(
    "wrong", [r"\S+ ?| ", r"[^ ]+| ", r"[A-Za-z]| |[0-9]", r"\S+\s+(?=\S)|\S+"]
)
def test_other_words_are_not(wrong: str) -> None:
    text = "He ate  12 eggs"
    for cutter in CUTTERS[:1] + CUTTERS[3:]:
        cut = re.findall(wrong, text)
        assert "".join(cut) == text
        assert [p for word in cut for p in pieces(cutter, word)] != pieces(cutter, text)


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()])
def test_ids_are_those_of_the_whole(byte_tokenizer: Callable[..., Any], normalizer: Any) -> None:
    merges = [("h", "i"), ("Ġ", "hi"), (".", "Ċ"), ("<", "|"), ("1", "6")]
    tokenizer = byte_tokenizer(merges=merges, special=("<s>", "<|end|>", "<|end|>x", "  "))
    backend = tokenizer.backend_tokenizer
    backend.normalizer = normalizer
    made = known_words(tokenizer, lambda text: backend.encode(text, add_special_tokens=False).ids)
    assert made is not None
    for text in ("", "<s>hi hi.\n<|end|>xhi<|end|> 16 16", "a   hi", "<think>é e\u0301 hi</think>"):
        for _ in range(2):  # learned, then known
            assert made.ids(text) == backend.encode(text, add_special_tokens=False).ids
    assert "hi" in made and "<|end|>x" in made and " 16" in made


def change(**parts: Any) -> Callable[[Any], None]:
    def apply(backend: Any) -> None:
        for name, part in parts.items():
            setattr(backend, name, part)

    return apply


def add(**flags: bool) -> Callable[[Any], None]:
    settings = {"normalized": False, **flags}
    return lambda backend: backend.add_tokens([AddedToken("<odd>", **settings)])


@pytest.mark.parametrize(
    "spoil",
    [
        change(pre_tokenizer=BARE),  # words merge with one another
        change(pre_tokenizer=pre.ByteLevel(add_prefix_space=True)),
        change(pre_tokenizer=pre.Whitespace()),
        change(pre_tokenizer=by(r"\S+|\s+")),
        change(pre_tokenizer=pre.Sequence([pre.Split(" ", "merged_with_next"), GPT2])),
        change(pre_tokenizer=pre.Sequence([pre.Split(Regex(EXPRESSIONS[0]), "removed"), BARE])),
        change(normalizer=normalizers.Prepend("▁")),
        change(normalizer=normalizers.NFKC()),
        change(model=models.WordLevel({"a": 0}, unk_token="a")),
        change(encode_special_tokens=True),
        lambda backend: setattr(backend.model, "dropout", 0.1),
        add(lstrip=True),
        add(rstrip=True),
        add(single_word=True),
        add(normalized=True),
    ],
)
def test_no_words_where_ids_may_differ(
    byte_tokenizer: Callable[..., Any], spoil: Callable[[Any], None]
) -> None:
    tokenizer = byte_tokenizer()
    assert known_words(tokenizer, lambda text: []) is not None
    spoil(tokenizer.backend_tokenizer)
    assert known_words(tokenizer, lambda text: []) is None


def test_a_wrong_cut_is_noticed(
    byte_tokenizer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = byte_tokenizer(merges=[("h", "i")])
    monkeypatch.setattr(words, "WORD", re.compile("."))
    with pytest.raises(AssertionError, match="transformers encodes this text otherwise"):
        Template(tokenizer, "", {}, "2024-07-26").ids("hi")
    monkeypatch.setattr(template_module, "CHECKED", 0)
    with pytest.raises(AssertionError, match="the words of this text have other ids"):
        Template(tokenizer, "", {}, "2024-07-26").ids("hi" * template_module.SPOT)


def test_kept_words_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "KEPT", 3)
    made = Words(lambda text: [len(text)], [])
    assert made.ids("one two three four five") == [3, 4, 6, 5, 5]
    assert list(made) == [" four", " five"]
    assert made.ids("x" * 65) == [65] and list(made) == [" four", " five"]
