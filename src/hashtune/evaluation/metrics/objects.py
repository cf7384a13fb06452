"""JSON objects in answers: found, compared value by value, and held against their fields."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hashtune.errors import Finding, InputError


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    """1e999 is JSON, but no number that anything here could write again."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} fits no double")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def parse_object(text: str) -> dict[str, Any] | None:
    """The first complete JSON object in a text, or None.

    Text around it is ignored. Where an object breaks off, the search goes on behind the break, so
    that an inner object of a truncated answer never counts as the answer.
    """
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            start = text.find("{", max(start + 1, error.pos))
        except (ValueError, RecursionError):  # NaN, 1e999, thousands of digits, endless [[[
            return None
        else:
            return value if isinstance(value, dict) else None
    return None


def reference_objects(fields: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    """The objects of the references, each with all fields.

    Raises:
        InputError: no fields; a reference that is no object or lacks a field.
    """
    findings = []
    if not fields:
        findings.append(
            Finding(
                "no-fields",
                "the metric json_fields needs at least one field",
                field="data.task.fields",
                fix="name the fields to score, or choose another metric",
            )
        )
    objects = []
    for index, reference in enumerate(references):
        value = parse_object(reference) or {}
        missing = [field for field in fields if field not in value]
        if missing or not value:
            what = f"has no field {', '.join(missing)}" if value else "is no JSON object"
            where = f"test item {index}"
            findings.append(Finding("reference", f"the reference {what}", field=where))
        objects.append(value)
    if findings:
        raise InputError(findings)
    return objects


def same(a: object, b: object) -> bool:
    """Equal as JSON values: 1 equals 1.0, but true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def fits(
    value: Mapping[str, Any] | None, reference: Mapping[str, Any], fields: Sequence[str]
) -> bool:
    """Whether an answer's object has exactly the reference's keys, and the declared fields with
    values of the reference's JSON type (whole numbers and fractions are one type)."""
    if value is None or value.keys() != reference.keys():
        return False
    return all(_kind(value[field]) == _kind(reference[field]) for field in fields)


def _kind(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__
