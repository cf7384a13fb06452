"""Are the JSON answers valid by a JSON Schema file? By the package jsonschema, draft 2020-12.

The schema is pinned, so it may refer to its own parts alone: a reference to an address would be
fetched, and could say something else tomorrow.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.evaluation.metrics.objects import parse_object
from hashtune.spec.metric_packages import json_schema_findings
from hashtune.spec.places import place
from hashtune.spec.schema import JsonSchema, Task
from hashtune.strict_json import StrictJsonError, parse_strict
from hashtune.writers import sha256_bytes

FIELD = "data.task.json_schema"
REFERENCES = ("$ref", "$dynamicRef")


def validator(task: Task, *, root: Path) -> Callable[[str], bool] | None:
    """Whether a text holds a JSON object (the first one counts) that the task's schema allows; None
    without a schema.

    Raises:
        InputError: the package is not there in its one version; a file that is not the pinned one,
            is no JSON Schema, or refers to anything outside of itself.
    """
    if task.json_schema is None:
        return None
    if findings := list(json_schema_findings(task)):
        raise InputError(findings)
    schema = _read(task.json_schema, root)
    jsonschema = import_module("jsonschema")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InputError(
            _finding(task.json_schema, f"is no JSON Schema: {error.message}")
        ) from error
    checks = jsonschema.Draft202012Validator(schema)

    def valid(text: str) -> bool:
        value = parse_object(text)
        return value is not None and bool(checks.is_valid(value))

    return valid


def _read(pin: JsonSchema, root: Path) -> Any:
    path, there = place(root, pin.uri)
    if not there or not path.is_relative_to(root.resolve()):
        raise InputError(_finding(pin, "leaves the project" if there else "does not exist"))
    data = path.read_bytes()
    if (found := sha256_bytes(data)) != pin.sha256:
        raise InputError(_finding(pin, f"has sha256 {found}, the spec pins {pin.sha256}"))
    try:
        schema = parse_strict(data.decode())
    except (StrictJsonError, UnicodeDecodeError) as error:
        raise InputError(_finding(pin, f"is no JSON: {error}")) from error
    outside = sorted({ref for ref in _references(schema) if not ref.startswith("#")})
    if outside:
        raise InputError(
            [_finding(pin, f"refers to {ref!r}, outside of itself") for ref in outside]
        )
    return schema


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (str(value[key]) for key in REFERENCES if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _finding(pin: JsonSchema, message: str) -> Finding:
    return Finding("json-schema", message, file=pin.uri, field=FIELD)
