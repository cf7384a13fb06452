"""What is wrong with the fields of a tool call, its arguments apart (messages.parse_arguments)."""

from collections.abc import Iterator
from typing import Any

BESIDE = frozenset({"id", "type", "index"})  # of a call; OpenAI streams an index
PARTS = ("name", "arguments")


def broken_call(call: object) -> Iterator[tuple[str, str]]:
    """(path within the call, what is wrong): no name, arguments under a name that nobody reads, or
    a name or arguments outside of `function` too. Let pass, a call is trained without them."""
    nested = isinstance(call, dict) and "function" in call
    function: Any = call["function"] if isinstance(call, dict) and nested else call
    within = ".function" if nested else ""
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name.strip():
        yield f"{within}.name", "expected the name of a function"
        return
    if "arguments" not in function:
        known = {"name"} if nested else {"name", *BESIDE}
        others = [key for key in function if key not in known and function[key] is not None]
        if others:
            yield f"{within}.{others[0]}", "is not read: arguments belong into 'arguments'"
    if nested and isinstance(call, dict):
        for key in PARTS:
            if call.get(key) is not None:
                yield f".{key}", "is given outside of function too: keep one"
