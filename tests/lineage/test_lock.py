"""A verdict belongs to a state, or it is refused."""

import hashlib

import pytest

from hashtune.errors import InputError
from hashtune.lineage.lock import lookup, other_plan, stale

GATE = '{"verdict": "pass"}\n'
LOCK = """schema: '2.0'
stages:
  train:
    params:
      params.yaml:
        optim.lr: 0.001
        optim.eps: 1e-08
        method.targets: all-linear
  gate:
    outs:
    - path: {path}
      md5: {md5}
"""


@pytest.fixture
def gate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gate.json").write_text(GATE)
    from pathlib import Path

    return Path("gate.json")


def lock_text(gate):
    return LOCK.format(path=gate.as_posix(), md5=hashlib.md5(GATE.encode()).hexdigest())


PARAMS = {"optim": {"lr": 0.001, "eps": 1e-8}, "method": {"targets": "all-linear"}}


def test_a_verdict_of_this_state_passes(gate):
    assert stale(lock_text(gate), PARAMS, gate) == []


def test_a_changed_param_and_a_changed_report_are_found(gate):
    changed = {**PARAMS, "optim": {"lr": 0.5, "eps": 1e-8}}
    (finding,) = stale(lock_text(gate), changed, gate)
    assert (finding.rule, finding.field) == ("stale-verdict", "optim.lr")
    gate.write_text(GATE.replace("pass", "fail"))
    (finding,) = stale(lock_text(gate), PARAMS, gate)
    assert finding.rule == "foreign-verdict"


def test_a_plan_is_judged_by_the_stages_that_made_it(gate):
    """train's own settings may change; those of prepare, tokenize and pack may not."""
    text = """stages:
  prepare: {params: {params.yaml: {data.eval: {uri: null}}}}
  pack: {params: {params.yaml: {data_seed: 5}}}
  train: {params: {params.yaml: {optim.lr: 0.5}}}
"""
    params = {"data": {"eval": {"uri": None}}, "data_seed": 5, "optim": {"lr": 1.0}}
    assert other_plan(text, params) == []
    findings = other_plan(text, {"data": {"eval": {"uri": "x"}}, "data_seed": 6})
    assert [(f.rule, f.field) for f in findings] == [
        ("other-plan", "data.eval"),
        ("other-plan", "data_seed"),
    ]
    (finding,) = other_plan("stages: {prepare: {}}\n", params)
    assert (finding.rule, finding.fix) == ("no-plan", "dvc repro pack")
    with pytest.raises(InputError, match="cut or damaged"):
        other_plan("stages:\n  ga", params)


@pytest.mark.parametrize("text", ["", "stages:\n  ga", "schema: '2.0'\n", "a: [1\n"])
def test_a_cut_lock_is_named_with_its_cure(gate, text):
    with pytest.raises(InputError, match=r"git checkout dvc\.lock"):
        stale(text, PARAMS, gate)


def test_lookup_of_nested_and_absent_keys():
    assert lookup({"a": {"b": 1}}, "a.b") == 1
    assert lookup({"a": 1}, "a.b") is None
