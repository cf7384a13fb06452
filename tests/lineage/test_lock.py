"""A verdict belongs to a state, or it is refused."""

import hashlib
from pathlib import Path

import pytest

from hashtune.errors import InputError
from hashtune.lineage.lock import lookup, other_plan, packed_rows, stale, stale_plan

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


CHAIN = """stages:
  train:
    outs:
    - {{path: build/train/adapter, md5: {made}}}
  evaluate:
    deps:
    - {{path: build/train/adapter, md5: aa.dir}}
    - {{path: data/test.jsonl, md5: cc}}
  gate:
    outs:
    - {{path: gate.json, md5: {gate}}}
"""


def test_a_verdict_on_an_adapter_that_was_trained_anew_is_found(gate):
    """Planted: `dvc repro train` alone, with steps more; no stage after it has other params."""
    recorded = hashlib.md5(GATE.encode()).hexdigest()
    assert stale(CHAIN.format(made="aa.dir", gate=recorded), {}, gate) == []
    (finding,) = stale(CHAIN.format(made="bb.dir", gate=recorded), {}, gate)
    assert (finding.rule, finding.file) == ("stale-verdict", "dvc.lock")
    assert finding.message == (
        "stage evaluate has not run since stage train made another build/train/adapter"
    )


def test_a_lock_whose_inputs_are_damaged_is_named_with_its_cure(gate):
    text = CHAIN.format(made="aa.dir", gate=hashlib.md5(GATE.encode()).hexdigest())
    for damaged in ("path: data/test.jsonl, md5", "{path: data/test.jsonl, md5: cc}"):
        with pytest.raises(InputError, match=r"git checkout dvc\.lock"):
            stale(text.replace(damaged, "x"), {}, gate)


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


ROWS = '{"train": {"rows": 222}}\n'
PACKED = """stages:
  prepare: {params: {params.yaml: {data_seed: 5}}}
  tokenize: {params: {params.yaml: {data.max_seq_len: 64}}}
  pack:
    params: {params.yaml: {data.packing: true, data_seed: 5, duration.max_steps: 9}}
    outs: [{path: pack.json, md5: %s}]
"""


def packed(**changes):
    data = {"max_seq_len": 64, "packing": True}
    params = {"data": data, "data_seed": 5, "duration": {"max_steps": 9}} | changes
    text = PACKED % hashlib.md5(ROWS.encode()).hexdigest()
    return packed_rows(text, params, Path("pack.json"))


def test_packed_rows_are_known_while_nothing_that_decides_them_changes(gate):
    assert packed() is None  # no report
    Path("pack.json").write_text(ROWS)
    assert packed() == 222
    assert packed(duration={"max_steps": 500}) == 222  # only which of them are seen
    assert packed(data={"max_seq_len": 64, "packing": False}) is None
    assert packed(data={"max_seq_len": 32, "packing": True}) is None
    assert packed(data_seed=6) is None  # of prepare, which splits by it
    assert packed_rows("stages: {}\n", {}, Path("pack.json")) is None
    Path("pack.json").write_text(ROWS.replace("222", "333"))
    assert packed() is None  # not the report that DVC recorded


@pytest.mark.parametrize("text", ["", "stages:\n  ga", "schema: '2.0'\n", "a: [1\n"])
def test_a_cut_lock_is_named_with_its_cure(gate, text):
    with pytest.raises(InputError, match=r"git checkout dvc\.lock"):
        stale(text, PARAMS, gate)


def test_lookup_of_nested_and_absent_keys():
    assert lookup({"a": {"b": 1}}, "a.b") == 1
    assert lookup({"a": 1}, "a.b") is None


def test_a_memory_plan_is_judged_by_its_own_params_and_those_of_its_rows(gate):
    text = LOCK.format(path=gate.as_posix(), md5=hashlib.md5(GATE.encode()).hexdigest())
    text = text.replace("  gate:", "  plan:")
    assert stale_plan(text, {"optim": {"lr": 9.0}}, gate) == []  # train's own
    made = text + "    params:\n      params.yaml:\n        batch.micro: 1\n"
    (finding,) = stale_plan(made, {"batch": {"micro": 2}}, gate)
    assert (finding.rule, finding.field) == ("stale-plan", "batch.micro")
    gate.write_text("{}")
    (finding,) = stale_plan(text, PARAMS, gate)
    assert finding.rule == "foreign-plan"
    (finding,) = stale_plan("stages: {}", PARAMS, gate)
    assert finding.rule == "no-plan"
