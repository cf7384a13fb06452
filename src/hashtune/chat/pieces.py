"""The bytes that each token of a byte-level tokenizer stands for: decoding by a table.

A tenth of the decoder's time. Other tokenizers are decoded by themselves.
"""

from typing import Any


def byte_pieces(backend: Any) -> dict[int, bytes] | None:
    """Bytes by id, such that those of several ids together are their text; None where there are
    none: another decoder than the byte-level one.

    Args:
        backend: a tokenizer of the tokenizers library.
    """
    from tokenizers import decoders
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    if not isinstance(backend.decoder, decoders.ByteLevel):
        return None
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    vocabulary = backend.get_vocab(with_added_tokens=True)
    return {token: _bytes(piece, letters) for piece, token in vocabulary.items()}


def _bytes(piece: str, letters: dict[str, int]) -> bytes:
    """As the byte-level decoder reads a piece: a byte a letter, or all of it as it is."""
    if all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return piece.encode("utf-8")
