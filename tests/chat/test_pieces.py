"""Texts from a table of bytes are those of the tokenizer's own decoder."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.chat.pieces import byte_pieces


def test_pieces_of_bytes_merges_and_control_tokens(byte_tokenizer: Callable[..., Any]) -> None:
    backend = byte_tokenizer(special=["<|end|>", "<｜é｜>"], merges=[("Ġ", "o")]).backend_tokenizer
    pieces = byte_pieces(backend)
    assert (
        pieces is not None and len(pieces) == 256 + 1 + 2 + 4
    )  # with <s>, </s>, <think>, </think>
    found = [pieces[token] for token in backend.encode("a oé\n<|end|><｜é｜>").ids]
    assert found == [b"a", b" o", b"\xc3", b"\xa9", b"\n", b"<|end|>", "<｜é｜>".encode()]


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_texts_are_those_of_the_decoder(byte_tokenizer: Callable[..., Any], text: str) -> None:
    backend = byte_tokenizer(merges=[("Ġ", "o"), ("o", "k")]).backend_tokenizer
    pieces = byte_pieces(backend)
    ids = backend.encode(text, add_special_tokens=False).ids
    assert pieces is not None
    assert b"".join(pieces[token] for token in ids).decode() == text
    assert backend.decode(ids, skip_special_tokens=False) == text


def test_another_decoder_has_none() -> None:
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.BPE({"a": 0}, []))
    assert byte_pieces(backend) is None
    backend.decoder = decoders.Metaspace()
    assert byte_pieces(backend) is None
