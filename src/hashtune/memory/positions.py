"""Does the base have a position for every token? Beyond them nothing was ever learned."""

from collections.abc import Mapping
from typing import Any

from hashtune.errors import Finding, InputError

KEY = "max_position_embeddings"  # of config.json


def check_positions(
    config: Mapping[str, Any],
    *,
    longest: int,
    virtual: int,
    what: str = "the longest document",
    file: str | None = "params.yaml",
) -> None:
    """Compare the longest document, whose positions begin at 0, with what the base has.

    Args:
        config: the base's config.json; one without KEY has no such limit.
        longest: tokens of the longest document.
        virtual: virtual tokens before each (method.virtual_tokens).
        what: what has so many tokens, in words; `file` where its length is set.

    Raises:
        InputError: there are fewer positions.
    """
    positions = config.get(KEY)
    if not isinstance(positions, int) or longest + virtual <= positions:
        return
    before = f" behind {virtual} virtual ones" if virtual else ""
    message = f"{what} has {longest} tokens{before}, and the base {positions} "
    message += f"positions ({KEY})"
    if virtual < positions:
        field, fix = "data.max_seq_len", f"data.max_seq_len={positions - virtual}, or another base"
    else:
        field, fix = "method.virtual_tokens", "fewer virtual tokens"
    raise InputError(Finding("too-long", message, file=file, field=field, fix=fix))
