"""Composition and drift: what conf/ says, what params.yaml says, and who is told."""

import subprocess

import pytest

from hashtune.errors import InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.drift import Difference, check_drift, differences, leaves, run_name
from hashtune.spec.load import validate
from hydra_plugins.hashtune_conf import conf_sha256, dvc_root


def test_committed_params_are_what_conf_composes(root, monkeypatch):
    monkeypatch.chdir(root)
    assert (root / "params.yaml").read_text(encoding="utf-8") == compose(root)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["experiment=smoke"],
        ["experiment=toy"],
        ["method=qlora"],
        ["method=prompt", "data.packing=false"],
        ["method=prefix", "data.packing=false"],
        ["method=full"],
        ["hardware=h100"],
        ["base_model=synthetic"],
        ["quantization=int8", "method.type=qlora"],
    ],
)
def test_every_shipped_choice_composes_and_validates(project, overrides):
    validate(parse(compose(project, overrides)))


def test_qlora_brings_nf4(project):
    spec = validate(parse(compose(project, ["method=qlora"])))
    assert (spec.quantization.type, spec.quantization.double_quant) == ("nf4", True)
    assert spec.method.type == "qlora"


@pytest.mark.parametrize("text", ["1e-4", "1e-04", "0.0001", "1.0e-4"])
def test_every_spelling_of_a_number_is_the_same_number(project, text):
    composed = parse(compose(project, [f"optim.lr={text}"]))
    assert composed["optim"]["lr"] == 0.0001
    assert isinstance(composed["optim"]["lr"], float)


def test_same_stamp_means_overrides(project):
    params = parse(compose(project, ["optim.lr=0.5", "method=qlora"]))
    drift = check_drift(project, params)
    assert drift.note is None
    assert [change.key for change in drift.overrides] == ["method", "optim.lr"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ([], "default"),
        (["method=qlora"], "default,method=qlora"),
        (["method=qlora", "method.r=64"], "default,method=qlora,method.r=64"),
        (["optim=sgd", "optim.lr=0.5"], "default,optim=sgd,optim.lr=0.5"),
        (["optim=sgd"], "default,optim=sgd"),
        (["optim=adamw_8bit"], "default,optim=adamw_8bit"),
        (["schedule=wsd", "schedule.decay=linear"], "default,schedule=wsd,schedule.decay=linear"),
        (["release.name=mine", "seed=7"], "default,release.name=mine,seed=7"),
        (["data_seed=7", "init_seed=7"], "default,data_seed=7,init_seed=7"),
        (["seed=7", "data_seed=8"], "default,data_seed=8,seed=7"),
        (["batch.micro=4", "batch.grad_accum=4"], "default,batch.grad_accum=4,batch.micro=4"),
        (["experiment=smoke", "optim.lr=1e-4"], "smoke,optim.lr=0.0001"),
    ],
)
def test_what_was_given_is_what_the_run_is_called(project, given, name):
    params = parse(compose(project, given))
    drift = check_drift(project, params)
    assert run_name(params["run"]["experiment"], drift.overrides) == name


def test_changed_comment_passes_with_a_note(project):
    params = parse(compose(project))
    file = project / "conf/optim/adamw.yaml"
    file.write_text(file.read_text() + "# a remark\n")
    drift = check_drift(project, params)
    assert drift.overrides == []
    assert "hashtune compose" in drift.note


def test_stale_conf_stops_with_key_and_both_values(project):
    params = parse(compose(project))
    file = project / "conf/optim/adamw.yaml"
    file.write_text(file.read_text().replace("lr: 0.001", "lr: 0.002"))
    with pytest.raises(InputError) as caught:
        check_drift(project, params)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("stale-params", "optim.lr")
    assert "conf/ says 0.002, params.yaml says 0.001" in finding.message


def test_an_edit_of_conf_is_told_apart_from_overrides(project):
    """Once conf/ is committed: what was given with -S is no edit, and comes back in the fix."""
    for command in (["init", "-q"], ["add", "conf"], ["commit", "-q", "-m", "conf"]):
        who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "-C", str(project), *who, *command], check=True)
    given = ["experiment=toy", "optim=sgd", "seed=7", "checkpoint.samples=0"]
    params = parse(compose(project, given))
    file = project / "conf/duration/default.yaml"
    file.write_text(file.read_text().replace("epochs: 1", "epochs: 2"))
    with pytest.raises(InputError) as caught:
        check_drift(project, params)
    (finding,) = caught.value.findings
    assert finding.field == "duration.epochs"
    assert "conf/ says 2, params.yaml says 1" in finding.message
    again = "`hashtune compose experiment=toy optim=sgd checkpoint.samples=0 seed=7`"
    assert finding.fix.startswith(again)


@pytest.mark.parametrize(
    ("given", "said", "fix"),
    [
        ("=3", "names no field", "KEY=VALUE"),
        ("optim.lrr=1", "optim.lrr", "did you mean 'optim.lr'?"),
        ("optm.lr=1", "optm", "did you mean"),
        ("optim.lr=1e-4,3e-4", "", "dvc exp run --queue"),
        ("method=qlorra", "Could not find 'method/qlorra'", "did you mean 'qlora'?"),
    ],
)
def test_what_hydra_says_of_a_wrong_override_comes_with_a_way_out(project, given, said, fix):
    with pytest.raises(InputError) as caught:
        compose(project, [given])
    (finding,) = caught.value.findings
    assert finding.rule == "compose"
    assert said in str(finding)
    assert fix in finding.fix


def test_an_override_of_an_experiment_is_told_apart_from_the_experiment(project):
    params = parse(compose(project, ["experiment=toy", "seed=7"]))
    drift = check_drift(project, params)
    assert [change.key for change in drift.overrides] == ["seed"]


def test_untracked_and_stray_files_are_refused_by_name(project):
    (project / "conf/optim/mine.yaml").write_text("name: adamw\n")
    (project / "conf/params.yaml").write_text("x: 1\n")
    with pytest.raises(InputError) as caught:
        compose(project)
    assert {(f.rule, f.file) for f in caught.value.findings} == {
        ("stray-params", "conf/params.yaml"),
        ("untracked-conf", "conf/optim/mine.yaml"),
    }


def test_params_left_by_a_run_in_another_folder_are_refused_too(project):
    (project / "data/params.yaml").write_text("x: 1\n")
    with pytest.raises(InputError) as caught:
        compose(project)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file) == ("stray-params", "data/params.yaml")
    assert "run in the root" in str(finding)


@pytest.mark.parametrize(
    "line", ["note: Say: the word", "  : [ bad", "\tlr: 1"], ids=["colon", "flow", "tab"]
)
def test_a_conf_file_that_is_no_yaml_is_refused_with_its_line(project, line):
    file = project / "conf/optim/adamw.yaml"
    before = file.read_text()
    file.write_text(f"{before}{line}\n")
    with pytest.raises(InputError) as caught:
        compose(project)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file) == ("yaml", "conf/optim/adamw.yaml")
    assert finding.line == before.count("\n") + 1


def test_a_bad_override_is_refused_in_hydras_words(project):
    with pytest.raises(InputError, match=r"optim\.lrr"):
        compose(project, ["optim.lrr=1"])
    with pytest.raises(InputError, match="nosuch"):
        compose(project, ["method=nosuch"])


def test_the_stamp_sees_names_and_bytes(project):
    before = conf_sha256(project)
    file = project / "conf/optim/sgd.yaml"
    file.rename(project / "conf/optim/other.yaml")
    renamed = conf_sha256(project)
    (project / "conf/optim/other.yaml").write_bytes(b"x")
    assert len({before, renamed, conf_sha256(project)}) == 3
    assert dvc_root(project / "conf/optim") == project


def test_differences_see_value_type_and_presence():
    assert differences(
        {"a": {"b": 1, "c": []}}, {"a": {"b": 1.0, "d": None}, "conf_sha256": 1}
    ) == [
        Difference("a.b", 1, 1.0),
        Difference("a.c", [], None),
    ]
    assert leaves({"a": {}, "b": {"c": [1]}}) == {"a": {}, "b.c": [1]}
