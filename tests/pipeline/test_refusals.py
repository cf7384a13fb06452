"""Refused specs: named exactly, before anything is downloaded or computed."""

import shutil


def test_edited_conf_stops_in_spec_with_key_values_and_fix(toy):
    toy.edit("conf/optim/adamw.yaml", "lr: 0.001", "lr: 0.007")
    output = toy.run("dvc", "repro", code=255)
    assert "optim.lr: conf/ says 0.007, params.yaml says 0.001" in output
    assert "hashtune compose" in output
    assert toy.stages(output) == ["spec"]


def test_comment_in_conf_passes_with_a_note(toy):
    toy.edit("conf/optim/adamw.yaml", "name: adamw", "# a remark\nname: adamw")
    output = toy.run("dvc", "repro")
    assert toy.stages(output) == ["spec"]
    assert "refresh the stamp" in output


def test_comment_in_code_reruns_only_code(toy):
    toy.edit("src/hashtune/training/loop.py", "import time", "import time  # a remark")
    output = toy.run("dvc", "repro")
    assert toy.stages(output) == ["code"]


def test_changed_code_reruns_its_stages_only(toy):
    toy.edit("src/hashtune/evaluation/verdicts.py", "10_000", "9_999")
    output = toy.run("dvc", "repro")
    assert toy.stages(output) == ["code", "gate", "release"]


def test_branch_as_revision_is_refused(toy):
    overrides = ["base_model.source=hub", "base_model.revision=main", "base_model.repo=org/model"]
    settings = [word for o in ["experiment=toy", *overrides] for word in ("-S", o)]
    output = toy.run("dvc", "exp", "run", *settings, code=255)
    assert "base_model.revision: 'main' is not a commit" in output
    assert toy.stages(output) == ["spec"]
    before = (toy.path / "params.yaml").read_text()
    output = toy.run("hashtune", "compose", "experiment=toy", *overrides, code=2)
    assert "base_model.revision: 'main' is not a commit" in output
    assert (toy.path / "params.yaml").read_text() == before


def test_unknown_key_is_refused_with_the_nearest(toy):
    before = (toy.path / "params.yaml").read_text()
    output = toy.run("hashtune", "compose", "+optim.learning=1", "+optim.lrr=2", code=2)
    assert "optim.lrr: unknown key; did you mean 'lr'?" in output
    assert (toy.path / "params.yaml").read_text() == before


def test_untracked_conf_file_is_refused_by_name(toy):
    shutil.copy2(toy.path / "conf/optim/adamw.yaml", toy.path / "conf/optim/mine.yaml")
    output = toy.run("dvc", "exp", "run", "-S", "experiment=toy", "-S", "optim=mine", code=255)
    assert "conf/optim/mine.yaml" in output
    assert "git add" in output
    output = toy.run("hashtune", "compose", "optim=mine", code=2)
    assert "git add conf/optim/mine.yaml" in output


def test_stray_params_in_conf_is_refused_by_name(toy):
    shutil.copy2(toy.path / "params.yaml", toy.path / "conf/params.yaml")
    toy.git("add", "conf/params.yaml")
    output = toy.run("dvc", "repro", code=255)
    assert "conf/params.yaml: is not part of conf/" in output


def test_changed_data_without_a_new_pin_is_refused(toy):
    toy.edit("data/triage/test.jsonl", "Gorsely", "Gorselx")
    output = toy.run("dvc", "repro", code=255)
    assert "data.test.sha256" in output
    assert toy.stages(output) == ["spec"]


def test_environment_that_differs_from_the_lock_is_refused(toy):
    text = (toy.path / "requirements.lock").read_text()
    (toy.path / "requirements.lock").write_text(text.replace("\npeft==", "\npeft==0.0.1.", 1))
    output = toy.run("dvc", "repro", code=255)
    assert "peft" in output
    assert "pip install -r requirements.lock" in output


def test_verdict_of_another_state_is_refused(toy):
    toy.run("hashtune", "check", "--gate")
    toy.edit("reports/gate.json", '"pass"', '"pass" ')
    assert "foreign-verdict" in toy.run("hashtune", "check", "--gate", code=2)
    toy.restore()
    toy.run("hashtune", "compose", "experiment=toy", "optim.lr=0.2")
    assert "stale-verdict" in toy.run("hashtune", "check", "--gate", code=2)


def test_plan_refuses_what_does_not_fit(toy):
    toy.run("hashtune", "compose", "experiment=toy", "hardware.memory_gb=0.1")
    output = toy.run("dvc", "repro", code=255)
    assert toy.stages(output) == ["spec", "plan"]
    assert "exited with 2" in output


def test_changed_code_cannot_be_filed_as_the_old_codes_result(toy):
    """Planted: new code, and `-s` so that `code` does not notice."""
    toy.edit("src/hashtune/training/loss.py", "CHUNK = 512", "CHUNK = 256")
    output = toy.run("dvc", "repro", "-f", "-s", "train", code=255)
    assert "changed-code" in output
    assert "dvc repro code" in output


def test_changed_library_cannot_be_filed_as_the_old_ones_result(toy):
    """Planted: another version than the one recorded for this stage."""
    record = toy.path / "build/code/pack.json"
    text = record.read_text()
    record.unlink()
    record.write_text(text.replace('"pyarrow": "', '"pyarrow": "0.', 1))
    output = toy.run("python", "-m", "hashtune.stages.pack", env={"PYTHONPATH": "src"}, code=2)
    assert "environment-differs" in output
    record.unlink()
