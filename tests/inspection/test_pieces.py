"""Pieces: runs by hand, nothing hidden, texts that add up to what the ids decode to."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.errors import InputError
from hashtune.inspection.pieces import control_ids, pieces, spans
from hashtune.inspection.visible import in_a_line, visible


class Blanks:
    """A vocabulary of words whose decoder drops the first blank, as SentencePiece's does."""

    words = ("<s>", "▁a", "▁b", "c")

    def __len__(self) -> int:
        return len(self.words)

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self.words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.words[token]


def test_nothing_stays_hidden() -> None:
    assert visible("a\n\tb") == "a⏎\n⇥b"
    assert visible("\x1b[31m\x9b\r\u202e\u200b\ufeff\u2028") == (
        "\\x1b[31m\\x9b\\x0d\\u{202e}\\u{200b}\\u{feff}\\u{2028}"
    )
    assert visible("a\u00a0b ä 你 😀") == "a\\xa0b ä 你 😀"


def test_runs_of_trained_and_control_tokens() -> None:
    found = pieces([0, 1, 3, 2, 0], [-100, -100, 3, 2, 0], Blanks(), frozenset({0}))
    assert [(piece.text, piece.trained, piece.control) for piece in found] == [
        ("<s>", False, True),
        (" a", False, False),
        ("c b", True, False),
        ("<s>", True, True),
    ]
    assert found[2].tokens == ((3, "c"), (2, " b"))


def test_control_tokens_are_the_special_ones(tokenizer: Any) -> None:
    assert control_ids(tokenizer) == {0, 1, 2}
    added = {7: SimpleNamespace(special=True), 8: SimpleNamespace(special=False)}
    fake = SimpleNamespace(all_special_ids=[1], added_tokens_decoder=added)
    assert control_ids(fake) == {1, 7}


def test_ids_of_another_tokenizer_are_refused() -> None:
    with pytest.raises(InputError, match="id 4 is not in the base's vocabulary of 4"):
        pieces([1, 4], [-100, 4], Blanks(), frozenset())


def test_a_part_of_a_character_shows_its_vocabulary_entry(tokenizer: Any) -> None:
    ids = tokenizer("ü", add_special_tokens=False)["input_ids"]
    assert len(ids) == 2  # two bytes that the corpus never joined
    (piece,) = pieces(ids, ids, tokenizer, frozenset())
    assert piece.text == "ü"
    assert [text for _, text in piece.tokens] == ["Ã", "¼"]


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(max_codepoint=126), max_size=30), st.data())
def test_texts_add_up(tokenizer: Any, text: str, data: st.DataObject) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    on = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    labels = [token if trained else -100 for token, trained in zip(ids, on, strict=True)]
    found = pieces(ids, labels, tokenizer, control_ids(tokenizer))
    assert "".join(piece.text for piece in found) == text
    assert [token for piece in found for token, _ in piece.tokens] == ids
    trained = [token for piece in found if piece.trained for token, _ in piece.tokens]
    assert trained == [label for label in labels if label != -100]
    assert sum(last - first + 1 for first, last in spans(labels)) == len(trained)


def test_a_text_in_a_line_is_cut_and_its_line_ends_are_marks() -> None:
    assert in_a_line("no\nend\n", most=9) == "no⏎ end⏎"
    assert in_a_line("a\x1b\tb" + "x" * 20, most=6) == "a\\x1b⇥bxx ... 18 more characters"
    assert in_a_line("", most=1) == ""
