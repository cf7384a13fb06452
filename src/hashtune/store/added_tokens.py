"""Control tokens that a base lacks: `tokenizer.added_tokens`, and the rows of the model for them.

A base that never saw a chat template often has no tokens for one. Each declared text becomes one
special token; where it needs a new id, and the embedding has no row for that id, rows are added.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hashtune import writers

SUMMED_ROWS = 8192  # rows of the embedding converted to float64 at a time


def add_tokens(tokenizer: Any, texts: Sequence[str]) -> None:
    """Make each text one special token. A text of the vocabulary keeps its id; the others get the
    ids behind the last one, in order."""
    from tokenizers import AddedToken

    tokens = [AddedToken(text, special=True, normalized=False) for text in texts]
    tokenizer.add_tokens(tokens, special_tokens=True)


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    """The ids of the declared tokens, ascending."""
    return sorted(tokenizer.convert_tokens_to_ids(list(texts)))


def rows_needed(ids: Sequence[int]) -> int:
    """How many rows the embedding must have for these ids."""
    return max(ids, default=-1) + 1


def grow(model: Any, rows: int) -> None:
    """Give embedding and head at least so many rows; each new one is the mean of the old ones.

    The mean is summed in float64, row after row, so it is the same in every stage and with any
    number of threads. A model that has the rows already keeps them as they are.
    """
    old = model.get_input_embeddings().weight.shape[0]
    if rows <= old:
        return
    means = [_mean_row(module.weight) for module in _matrices(model)]
    model.resize_token_embeddings(rows, mean_resizing=False)
    for module, mean in zip(_matrices(model), means, strict=True):
        module.weight.data[old:] = mean.to(module.weight)


def _matrices(model: Any) -> list[Any]:
    """Embedding and head; the embedding alone where the head is tied to it."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is None or head.weight is embedding.weight
    return [embedding] if tied else [embedding, head]


def _mean_row(weight: Any) -> Any:
    import numpy as np
    import torch

    total = np.zeros(weight.shape[1])
    for part in weight.detach().split(SUMMED_ROWS):
        total += part.double().cpu().numpy().sum(axis=0)
    return torch.from_numpy(total / weight.shape[0])


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write tokenizer.json with the added tokens over the base's own in `folder`, and name them in
    tokenizer_config.json where that lists its added tokens too."""
    text = tokenizer.backend_tokenizer.to_str(pretty=True)
    writers.write_text(folder / "tokenizer.json", f"{text}\n")
    config = folder / "tokenizer_config.json"
    settings = writers.read_json(config) if config.is_file() else {}
    if "added_tokens_decoder" in settings:
        settings["added_tokens_decoder"] = {
            str(number): token.__getstate__()
            for number, token in sorted(tokenizer.added_tokens_decoder.items())
        }
        writers.write_json(config, settings)
