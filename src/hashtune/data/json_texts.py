"""The texts in a JSON value."""

from collections.abc import Iterator


def texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """(field path, text) of every string in a JSON value."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from texts(inner, f"{path}[{index}]")
