"""Added control tokens: rows of embedding and head that are trained beside the LoRA matrices.

PEFT keeps the trained rows apart (`trainable_tokens_delta`) and puts them in place of the frozen
ones, so the adapter carries them and the base's other rows stay as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


def trainable_rows(base: Any, ids: Sequence[int]) -> dict[str, list[int]] | None:
    """PEFT's `trainable_token_indices`: the ids for the embedding and for the head (one that is
    tied to the embedding follows it); None without ids."""
    if not ids:
        return None
    wanted = (base.get_input_embeddings(), base.get_output_embeddings())
    names = [name for name, module in base.named_modules() if any(module is one for one in wanted)]
    return {name.rpartition(".")[2]: list(ids) for name in names}


def check_trainable(peft: Any, ids: Sequence[int]) -> None:
    """Every added token has a trainable row in the embedding and in the head.

    Raises AssertionError: a token that stays as it was is never learned, and that is our fault.
    """
    for place, module in _places(peft):
        rows, found = _rows(module)
        assert rows is not None and rows.requires_grad, f"{place} has no trainable rows"
        lacking = sorted(set(ids) - set(found))
        assert not lacking, f"ids {lacking} have no trainable row in {place}"


def still_tokens(peft: Any, start: Mapping[str, Tensor] | None = None) -> list[int]:
    """Ids of added tokens whose row of the head is what it was before training: the base's, or that
    of `start`, the tensors of an adapter that training continued from.

    Every step's loss reaches every row of the head; the embedding's are reached where a token
    occurs, so they prove nothing.
    """
    (_, head) = _places(peft)[1]
    rows, ids = _rows(head)
    if rows is None:
        return []
    before = head.token_adapter.trainable_tokens_original["default"]
    if start:
        # one parameter of a tied head and its embedding has the embedding's name
        (name,) = [name for name, parameter in peft.named_parameters() if parameter is rows]
        before = start[name.removesuffix(".default")]
    moved = (rows.detach() != before.to(rows)).any(dim=1).tolist()
    return [token for token, has in zip(ids, moved, strict=True) if not has]


def _places(peft: Any) -> list[tuple[str, Any]]:
    model = peft.get_base_model()
    return [
        ("the embedding", model.get_input_embeddings()),
        ("the head", model.get_output_embeddings()),
    ]


def _rows(module: Any) -> tuple[nn.Parameter | None, list[int]]:
    """The trained rows of a module and their ids."""
    layer = getattr(module, "token_adapter", None)
    if layer is None:
        return None, []
    return layer.trainable_tokens_delta["default"], list(layer.token_indices["default"])
