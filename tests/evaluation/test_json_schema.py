"""Answers held against a JSON Schema file: the package's verdict, and what is refused."""

import json
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.metrics.valid import validator
from hashtune.evaluation.tasks import task_summary
from hashtune.spec.metric_packages import JSON_SCHEMA
from hashtune.spec.schema import JsonSchema, Task
from hashtune.writers import sha256_bytes

SCHEMA = {
    "type": "object",
    "properties": {"n": {"$ref": "#/$defs/whole"}},
    "required": ["n"],
    "$defs": {"whole": {"type": "integer"}},
}


def task(folder, schema=SCHEMA, pin=None, uri="schema.json"):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    (folder / uri).write_text(text)
    file = JsonSchema(uri=uri, sha256=pin or sha256_bytes(text.encode()))
    return Task(
        metric="token_f1", user_metric=None, fields=[], json_schema=file, base_instruction=None
    )


class Checks:
    """The part of the package that the code uses: whole numbers under "n"."""

    def __init__(self, schema):
        self.schema = schema

    @staticmethod
    def check_schema(schema):
        if schema.get("type") not in (None, "object"):
            raise StubError("that is no type")

    def is_valid(self, value):
        return isinstance(value.get("n"), int)


class StubError(Exception):
    message = "that is no type"


def installed():
    try:
        return metadata.version("jsonschema") == JSON_SCHEMA[1]
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """The package itself where it is installed, else a stand-in."""
    if installed():
        return
    stub = SimpleNamespace(Draft202012Validator=Checks, SchemaError=StubError)
    monkeypatch.setitem(sys.modules, "jsonschema", stub)
    monkeypatch.setattr(metadata, "version", lambda name: JSON_SCHEMA[1])


ANSWERS = {
    '{"n": 1}': True,
    'Here: {"n": 2}.': True,
    '{"n": "1"}': False,
    '{"m": 1}': False,
    '{"n": 1': False,
    "no": False,
}


def test_the_share_of_valid_answers_is_in_the_summary(tmp_path):
    rows = [
        {"answer": text, "reference": "", "finished": True, "tokens": 1}
        | {"scores": {"answer": 0.0}, "majority": {"answer": 0.0}}
        for text in ANSWERS
    ]
    valid = validator(task(tmp_path), root=tmp_path)
    assert {text: valid(text) for text in ANSWERS} == ANSWERS
    assert task_summary(task(tmp_path), rows, root=tmp_path)["json_schema_share"] == 0.333333
    without = task(tmp_path).model_copy(update={"json_schema": None})
    assert "json_schema_share" not in task_summary(without, rows, root=tmp_path)


@pytest.mark.parametrize(
    ("schema", "changes", "told"),
    [
        (SCHEMA, {"pin": "0" * 64}, "the spec pins 000"),
        ("{", {}, "is no JSON"),
        ({"type": "objekt"}, {}, "is no JSON Schema"),
        ({"$ref": "https://example.org/s.json"}, {}, "refers to 'https://example.org/s.json'"),
        ({"items": [{"$dynamicRef": "other.json"}]}, {}, "refers to 'other.json', outside"),
    ],
)
def test_schemas_that_are_refused(tmp_path, schema, changes, told):
    with pytest.raises(InputError, match=told):
        validator(task(tmp_path, schema, **changes), root=tmp_path)


def test_a_schema_that_is_not_there_is_refused(tmp_path):
    own = task(tmp_path)
    (tmp_path / "schema.json").unlink()
    with pytest.raises(InputError, match="does not exist"):
        validator(own, root=tmp_path)


def test_without_the_package_it_is_refused_with_the_command(tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(InputError) as caught:
        validator(task(tmp_path), root=tmp_path)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.fix) == ("metric-package", "pip install jsonschema==4.26.0")
