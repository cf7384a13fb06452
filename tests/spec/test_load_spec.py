"""Reading params.yaml: strict, all findings at once, nearest names."""

import pytest

from hashtune.errors import InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import read_spec, validate


@pytest.fixture
def params(project):
    return parse(compose(project))


def findings(params):
    with pytest.raises(InputError) as caught:
        validate(params)
    return {finding.field: finding.message for finding in caught.value.findings}


def test_unknown_keys_name_the_nearest(params):
    params["optim"]["lrr"] = 1.0
    params["data"]["sources"][0]["shema"] = "x"
    params["sead"] = 3
    found = findings(params)
    assert found["optim.lrr"] == "unknown key; did you mean 'lr'?"
    assert "did you mean 'schema'?" in found["data.sources[0].shema"]
    assert "did you mean 'seed'?" in found["sead"]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("optim", "lr", "1e-4"),
        ("optim", "lr", -1.0),
        ("optim", "lr", float("nan")),
        ("method", "r", 8.5),
        ("method", "r", True),
        ("method", "r", 0),
        ("method", "targets", []),
        ("batch", "world_size", 2),
        ("data", "packing", "yes"),
        ("base_model", "sha256", "abc"),
        ("tokenizer", "date", "today"),
        ("tokenizer", "date", "2026-02-30"),  # else an unexpected exception in tokenize
        ("tokenizer", "date", "2026-13-01"),
        ("eval_gate", "confidence", 1.0),
    ],
)
def test_wrong_types_and_ranges_are_refused_by_field(params, section, key, value):
    params[section][key] = value
    assert any(field.startswith(f"{section}.{key}") for field in findings(params))


@pytest.mark.parametrize(
    ("section", "key"), [("schedule", "branch_from"), ("base_model", "init_adapter")]
)
def test_a_text_where_a_section_belongs_is_told_its_fields(params, section, key):
    params[section][key] = "data/x"
    with pytest.raises(InputError) as caught:
        validate(params)
    (finding,) = caught.value.findings
    assert (finding.field, finding.message) == (f"{section}.{key}", "needs the fields path, sha256")


def test_all_findings_come_at_once(params):
    params["optim"]["lr"] = "fast"
    del params["method"]["r"]
    params["precision"] = "fp8"
    assert findings(params).keys() == {"optim.lr", "method.r", "precision"}


def test_an_integer_is_a_float_but_not_the_other_way(params):
    params["optim"]["lr"] = 1
    assert validate(params).optim.lr == 1.0


def test_a_stage_gets_only_the_sections_it_names(project, params):
    (project / "params.yaml").write_text(compose(project))
    spec = read_spec("optim", "seed")
    assert (spec.optim.name, spec.seed) == ("adamw", 1234)
    with pytest.raises(AttributeError):
        _ = spec.schedule


def test_a_stage_refuses_its_own_broken_section(project):
    text = compose(project).replace("  lr: 0.001", "  lr: fast")
    (project / "params.yaml").write_text(text)
    read_spec("method")
    with pytest.raises(InputError, match=r"optim\.lr"):
        read_spec("optim")


@pytest.mark.parametrize("text", ["a: [1\n", "- 1\n", "\xff".encode("latin-1")])
def test_a_broken_params_file_is_named(project, text):
    path = project / "params.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"params\.yaml"):
        read_spec("optim")


def test_a_missing_params_file_names_its_cure(project):
    with pytest.raises(InputError, match="hashtune compose"):
        read_spec("optim")
