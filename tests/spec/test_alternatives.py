"""Fields of several kinds: one finding in the spec's own words, whichever kinds there are."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from hashtune.errors import InputError
from hashtune.spec.alternatives import faults
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import read_spec, validate


class Inner(TypedDict):
    size: int


Several = (
    Literal["all"]
    | Annotated[list[str], Field(min_length=1)]
    | dict[str, Literal["a", "b"]]
    | Annotated[int, Field(ge=1)]
    | None
)


def told(kind: Any, value: Any) -> list[tuple[tuple[Any, ...], str]]:
    adapter: TypeAdapter[Any] = TypeAdapter(dict[str, kind])
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python({"x": value}, strict=True)
    return [(fault.path, fault.message) for fault in faults(caught.value, (), {"x": value})]


def test_a_value_of_no_kind_is_one_fault_with_all_kinds() -> None:
    assert told(Several, 1.5) == [
        (
            ("x",),
            "Input should be 'all', or a valid list, or a valid dictionary, or a valid integer, "
            "got float 1.5",
        )
    ]


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (["q", 2], ("x", 1), "Input should be a valid string, got int 2"),
        ({"k": "c"}, ("x", "k"), "Input should be 'a' or 'b', got str 'c'"),
        ({3: "a"}, ("x", 3), "Input should be a valid string, got int 3"),
    ],
)
def test_a_value_that_is_nearly_of_one_kind_is_told_by_what_that_kind_lacks(
    value: Any, path: tuple[Any, ...], message: str
) -> None:
    assert told(Several, value) == [(path, message)]


def test_two_kinds_that_lack_something_in_the_same_place_are_one_fault() -> None:
    text = "Input should be a valid string, or a valid boolean, got int 1"
    assert told(list[str] | list[bool], [1]) == [(("x", 0), text)]


def test_a_missing_key_of_a_kind_keeps_its_name() -> None:
    assert told(Inner | list[str], {}) == [(("x", "size"), "is missing")]


def test_a_key_that_looks_like_a_kind_is_a_key() -> None:
    text = "Input should be a valid integer, got str 'y'"
    assert told(dict[str, int], {"list[str]": "y"}) == [(("x", "list[str]"), text)]


@pytest.mark.parametrize(
    ("section", "key", "value", "fields"),
    [
        ("method", "targets", [], ["method.targets"]),
        ("method", "targets", "all", ["method.targets"]),
        ("method", "targets", 3, ["method.targets"]),
        ("method", "targets", [1, "q_proj", 2], ["method.targets[0]", "method.targets[2]"]),
        ("cleaning", "on_bad_row", "dropp", ["cleaning.on_bad_row"]),
        ("cleaning", "on_bad_row", {"blank": "dropp"}, ["cleaning.on_bad_row.blank"]),
        ("base_model", "init_adapter", "x", ["base_model.init_adapter"]),
        ("base_model", "init_adapter", {"path": "x"}, ["base_model.init_adapter.sha256"]),
    ],
)
def test_findings_hold_the_spec_s_own_path_only(
    project: Any, section: str, key: str, value: Any, fields: list[str]
) -> None:
    params = parse(compose(project))
    params[section][key] = value
    with pytest.raises(InputError) as caught:
        validate(params)
    assert [finding.field for finding in caught.value.findings] == fields


def test_a_stage_s_findings_do_too(project: Any) -> None:
    text = compose(project).replace("targets: all-linear", "targets: all")
    (project / "params.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_spec("method")
    assert [finding.field for finding in caught.value.findings] == ["method.targets"]


def test_a_section_that_is_not_there_is_named(project: Any) -> None:
    (project / "params.yaml").write_text("seed: 1\n")
    with pytest.raises(InputError) as caught:
        read_spec("method", "precision")
    assert [finding.field for finding in caught.value.findings] == ["method", "precision"]
