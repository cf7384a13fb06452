"""Why resume state is not this run's: the parts of two train identities, compared by name.

Libraries first: a new version often changes more than itself. Then code, files and settings.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hashtune.training.identity import field_values

CODE = "build/code/train.json"  # told apart by its libraries and modules


def differences(kept: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Each difference as "optim.lr: 0.01 there, 0.02 here".

    Args:
        kept: "spec" (identity_parts) and "code" (the record of build/code/train.json) of the run
            that wrote the state.
        now: the same of this run.
    """
    there, here = (side["code"] for side in (kept, now))
    yield from _named("library", *(_libraries(code) for code in (there, here)))
    yield from _named("module", *(code.get("modules", {}) for code in (there, here)))
    yield from _named("", *(_fields(side["spec"], side["code"]) for side in (kept, now)))


def _named(what: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            shown = (_short(side.get(name)) for side in (there, here))
            yield f"{what} {name}: {next(shown)} there, {next(shown)} here".strip()


def _libraries(code: Mapping[str, Any]) -> dict[str, Any]:
    versions = dict(code.get("packages", {}))
    return versions | ({"python": code["python"]} if "python" in code else {})


def _fields(parts: Mapping[str, Any], code: Mapping[str, Any]) -> dict[str, Any]:
    fields = field_values(parts)
    return {name: value for name, value in fields.items() if not (code and name == CODE)}


def _short(value: object) -> str:
    """16 digits tell two hashes apart."""
    if isinstance(value, str) and len(value) == 64:
        return value[:16]
    return "nothing" if value is None else str(value)
