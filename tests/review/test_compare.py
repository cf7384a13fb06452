"""Reviews of two revisions of this project: each kind of change is told for what it is."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from hashtune.errors import InputError
from hashtune.review.consequences import Group
from hashtune.writers import sha256_file

TRAIN = "data/triage/train.jsonl"
TEST = "data/triage/test.jsonl"


def stages(review):
    return [rerun.stage for rerun in review.reruns]


def certain(review):
    return [rerun.stage for rerun in review.reruns if rerun.certain]


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines(keepends=True)


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def edit(two, name: str, lines: list[str], pin: str) -> None:
    file = two.head / name
    file.write_text("".join(lines), encoding="utf-8")
    two.set({pin: sha256_file(file)})


def test_nothing_changed(two):
    review = two.review()
    assert (review.notices, review.changes, review.reruns, review.rows) == ([], [], [], [])
    assert review.recorded
    page = two.page()
    assert "No setting changed." in page
    assert "None: `dvc repro` finds every output up to date." in page
    assert "Verdict: pass → **pass**" in page


def test_a_learning_rate(two):
    two.set({"optim.lr": 0.0005})
    review = two.review()
    [change] = review.changes
    assert (change.key, change.old, change.new) == ("optim.lr", 0.001, 0.0005)
    assert change.groups == (Group.WEIGHTS,)
    assert certain(review) == ["spec", "plan", "train", "release"]
    assert stages(review) == [
        *("spec", "plan", "train", "evaluate", "regress", "gate", "release"),
    ]  # nothing of the data, and the base's baseline stays
    assert not review.recorded
    assert "`optim.lr`: `0.001` → `0.0005`: updates the weights otherwise." in two.page()


def test_a_learning_rate_with_the_batch(two):
    two.set({"optim.lr": 0.002, "batch.grad_accum": 4})
    review = two.review()
    assert review.batch == (1, 4)
    assert any("changed together with the effective batch (1 to 4" in n for n in review.notices)


def test_the_batch_alone(two):
    two.set({"batch.micro": 2})
    assert any("the learning rate did not" in notice for notice in two.review().notices)


@pytest.mark.parametrize("change", [{"data.packing": False}, {"data.max_seq_len": 128}])
def test_rows_that_hold_other_documents(two, change):
    """Planted: "1 row per step (unchanged)" of rows with one document in place of three."""
    two.set(change)
    [key] = change
    assert any(f"A row holds other documents (`{key}`)" in n for n in two.review().notices)


def test_a_batch_cut_otherwise_is_the_same_batch(two):
    for name, micro, accum in (("base", 4, 1), ("head", 2, 2)):
        two_of = type(two)(two.base, getattr(two, name))
        two_of.set({"batch.micro": micro, "batch.grad_accum": accum})
    review = two.review()
    assert review.batch == (4, 4)
    assert not any("effective batch" in notice for notice in review.notices)


def test_data_rows(two):
    """Row 1 gone, row 2 edited, a new one."""
    lines = lines_of(two.head / TRAIN)
    edited = json.loads(lines[1])
    edited["messages"][-1]["content"] = "edited"
    new = json.dumps({**edited, "id": "mine", "messages": [{"role": "user", "content": "new?"}]})
    edit(
        *(two, TRAIN, [json.dumps(edited) + "\n", *lines[2:], new + "\n"]),
        pin="data.sources.0.sha256",
    )
    review = two.review()
    [rows] = review.rows
    assert (rows.role, rows.before, rows.after) == ("data.sources.triage", 1280, 1280)
    assert len(rows.added) == len(rows.removed) == len(rows.changed) == 1
    assert json.loads(rows.removed[0]) == json.loads(lines[0])
    assert json.loads(rows.changed[0][0]) == json.loads(lines[1])
    assert json.loads(rows.added[0])["id"] == "mine"
    assert [change.groups for change in review.changes] == [(Group.TOKENS,)]
    assert {"prepare", "tokenize"} <= set(certain(review))
    assert "1280 → 1280 rows: 1 added, 1 removed, 1 changed." in two.page()


def test_rows_in_another_order(two):
    """Planted: it said "0 added, 0 removed, 0 changed" of a file whose pin changed."""
    edit(two, TRAIN, lines_of(two.head / TRAIN)[::-1], pin="data.sources.0.sha256")
    assert "0 changed. The same rows in another order" in two.page()


def test_rows_written_otherwise(two):
    rows = [json.loads(line) for line in lines_of(two.head / TRAIN)]
    text = [json.dumps(row, indent=None, separators=(",  ", ": ")) + "\n" for row in rows]
    edit(two, TRAIN, text, pin="data.sources.0.sha256")
    assert "0 changed. The same rows in the same order, written otherwise" in two.page()


def test_a_test_row_among_the_training_rows(two):
    """Planted: prepare would refuse it, and a reviewer should see it before."""
    line = lines_of(two.head / TEST)[0]
    edit(two, TRAIN, [*lines_of(two.head / TRAIN), line], pin="data.sources.0.sha256")
    notices = two.review().notices
    assert any("1 added training row asks what a test row asks" in notice for notice in notices)


def test_data_without_their_pin(two):
    lines = lines_of(two.head / TRAIN)
    (two.head / TRAIN).write_text("".join(lines[1:]), encoding="utf-8")
    assert any("pin `data.sources.triage.sha256` did not" in n for n in two.review().notices)


def test_a_template(two):
    two.set({"tokenizer.chat_template": "data/own.jinja", "tokenizer.sha256": "0" * 64})
    review = two.review()
    assert {change.groups for change in review.changes} == {(Group.TOKENS, Group.VERDICT)}
    assert set(certain(review)) >= {"base", "tokenize", "baseline", "evaluate", "regress"}
    assert "**Changes what the verdict means**, too." in two.page()


def test_a_test_set_with_the_gate(two):
    edit(two, TEST, lines_of(two.head / TEST)[:100], pin="data.test.sha256")
    two.set({"eval_gate.task_min": 0.5})
    notices = " ".join(two.review().notices)
    assert "The test set changed" in notices
    assert "changed together" in notices
    assert "The gate asks for less: `eval_gate.task_min` goes from 0.75 to 0.5." in notices


def test_a_stricter_gate_is_no_warning(two):
    two.set({"eval_gate.task_min": 0.9, "eval_gate.slice_max_drop": 0.01})
    review = two.review()
    assert not any("asks for less" in notice for notice in review.notices)
    assert certain(review) == ["spec", "gate", "release"]


def test_a_looser_gate_with_other_training_data(two):
    """Planted: the margin is loosened in the change whose adapter needs it."""
    edit(two, TRAIN, lines_of(two.head / TRAIN)[100:], pin="data.sources.0.sha256")
    two.set({"eval_gate.regression_max_drop": 0.2})
    [notice] = [notice for notice in two.review().notices if "asks for less" in notice]
    assert notice == (
        "The gate asks for less: `eval_gate.regression_max_drop` goes from 0.05 to 0.2, together"
        " with what is trained (`data.sources.triage.sha256`): judge that by the old gate first."
    )


def test_a_task_field_that_is_judged_no_more(two):
    """Planted: the weaker of two fields taken out of the task, and no word of it."""
    two.set({"data.task.fields": ["intent"]})
    [notice] = [notice for notice in two.review().notices if "scores answers" in notice]
    assert notice == (
        "What scores answers changed (`data.task.fields`): scores before and after do not compare."
        " `priority` is judged no more."
    )


def test_an_eval_set(two):
    two.set({"data.eval.max_rows": 16})
    review = two.review()
    assert any("The eval set changed" in notice for notice in review.notices)
    assert [change.groups[0] for change in review.changes] == [Group.WEIGHTS]


def test_a_suite_that_loses_items(two):
    name = "data/suites/knowledge.jsonl"
    lines = lines_of(two.head / name)
    index = next(
        place
        for place, suite in enumerate(two.params(two.head)["regression"]["suites"])
        if suite["uri"] == name
    )
    edit(two, name, lines[2:], pin=f"regression.suites.{index}.sha256")
    assert any("lost 2 items" in notice for notice in two.review().notices)


def test_hardware_alone(two):
    two.set({"hardware.name": "a100", "hardware.memory_gb": 40.0, "hardware.price_per_hour": 1.5})
    review = two.review()
    assert {change.groups for change in review.changes} == {(Group.COST,)}
    assert stages(review) == ["spec", "plan", "release"]


def test_seeds_alone(two):
    two.set({"seed": 7})
    assert two.review().notices[-1] == (
        "Only seeds changed: a difference in the figures is seed noise, not progress."
    )


@pytest.mark.parametrize(
    ("settings", "scales"),
    [
        ({"method.r": 64}, ("2", "0.5")),  # 32 / 16, 32 / 64
        ({"method.variant": "rslora"}, ("2", "8")),  # 32 / sqrt(16)
        ({"method.r": 32, "method.alpha": 64.0}, None),  # 2 before and after
        ({"method.targets": ["q_proj"]}, None),
    ],
)
def test_the_scale_of_the_update(two, settings, scales):
    """A rank alone changes alpha / r, which is told as what it is."""
    two.set(settings)
    found = [notice for notice in two.review().notices if "scale of the LoRA update" in notice]
    assert len(found) == (scales is not None)
    assert all(f"goes from {scales[0]} to {scales[1]} (" in notice for notice in found)


@pytest.mark.parametrize("most", [175, None])
def test_epochs_that_max_steps_cuts(two, most):
    two.set({"duration.epochs": 3, "duration.max_steps": most})
    found = [notice for notice in two.review().notices if "cuts the run before and after" in notice]
    assert len(found) == (most is not None)


def test_code_and_a_comment(two):
    file = two.head / "src/hashtune/training/loss.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "\n# a comment\n", encoding="utf-8")
    review = two.review()
    assert (stages(review), review.notices, review.recorded) == (["code"], [], True)
    file.write_text(text + "\nPLANTED = 1\n", encoding="utf-8")
    review = two.review()
    assert "train" in certain(review)
    assert "tokenize" not in stages(review)
    train = next(rerun for rerun in review.reruns if rerun.stage == "train")
    assert train.reasons == ["code: hashtune.training.loss"]


def test_a_library(two):
    file = two.head / "requirements.lock"
    text = file.read_text(encoding="utf-8").replace("torch==", "torch==9", 1)
    file.write_text(text, encoding="utf-8")
    review = two.review()
    assert any("requirements.lock changed" in notice for notice in review.notices)
    assert "libraries, if it uses them: torch" in two.page()


def test_results_of_the_head(two):
    """After `dvc repro`: dvc.lock and the reports are the head's own."""
    two.set({"optim.lr": 0.0005})
    lock = two.head / "dvc.lock"
    text = lock.read_text(encoding="utf-8").replace("optim.lr: 0.001", "optim.lr: 0.0005")
    for stage in ("spec", "release"):  # their deps have other hashes
        text = text.replace(f"  {stage}:\n", f"  {stage}:\n    again: 1\n")
    gate = two.head / "reports/gate.json"
    report = json.loads(gate.read_text(encoding="utf-8"))
    report["verdict"] = report["rules"][2]["verdict"] = "fail"
    report["rules"][2] |= {"value": 0.5, "interval": [0.4, 0.6]}
    gate.write_text(json.dumps(report), encoding="utf-8")
    for name in ("reports/gate.json", "params.yaml"):
        text = text.replace(md5(two.base / name), md5(two.head / name))
    lock.write_text(text, encoding="utf-8")
    page = two.page()
    assert "Look here first" not in page
    assert "Verdict: pass → **fail**" in page
    name = report["rules"][2]["name"]
    [line] = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    assert "0.5 [0.4, 0.6]" in line
    assert line.endswith("pass → **fail** |")


def test_rows_cannot_break_out_of_the_page(two):
    """Planted: a row with fences, markup and a table bar."""
    evil = {"messages": [{"role": "user", "content": "```\n````diff\n<script>x</script> | y"}]}
    lines = [*lines_of(two.head / TRAIN), json.dumps(evil, ensure_ascii=False) + "\n"]
    edit(two, TRAIN, lines, pin="data.sources.0.sha256")
    page = two.page()
    fenced = page.partition("`````diff\n")[2].partition("\n`````\n")[0]
    assert "<script>x</script>" in fenced
    assert page.count("<script>") == 1


def test_a_file_that_leaves_the_revision_is_not_read(two, tmp_path):
    (tmp_path / "secret.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    two.set({"data.test.uri": "../secret.jsonl", "data.test.sha256": "1" * 64})
    [rows] = two.review().rows
    assert rows.note == "is gone: neither Git nor a .dvc file has it in the head"


@pytest.mark.parametrize("broken", ["{", '{"messages": 1}\n\x00'])
def test_rows_that_cannot_be_read_are_counted(two, broken):
    edit(two, TEST, [broken], pin="data.test.sha256")
    [rows] = two.review().rows
    assert rows.note is not None
    assert "cannot be read" in rows.note


def test_a_head_without_a_lock_has_no_results(two: Any) -> None:
    """Its reports would be shown as its own, and every stage as up to date."""
    (two.head / "dvc.lock").unlink()
    review = two.review()
    assert not review.recorded
    assert [rerun.stage for rerun in review.reruns][:3] == ["code", "spec", "base"]
    assert any("The head has no dvc.lock" in notice for notice in review.notices)


def test_a_data_file_that_the_head_lost(two: Any) -> None:
    (two.head / "data/triage/train.jsonl").unlink()
    page = two.page()
    assert "No data file changed." not in page
    assert "`data/triage/train.jsonl` is gone" in page
    (two.head / "data/triage/train.jsonl.dvc").write_text("outs: []", encoding="utf-8")
    assert "is gone" not in two.page()  # moved out of Git, same hash


@pytest.mark.parametrize("text", ['{"verdict": 3', "[]", '"x"', "\udcff"])
@pytest.mark.parametrize("name", ["gate", "plan", "machine/train"])
def test_a_report_that_cannot_be_read_is_named(two: Any, name: str, text: str) -> None:
    two.set({"optim.lr": 5e-4})  # train reruns, so what it took is read
    for folder in (two.base, two.head):
        (folder / f"reports/{name}.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError) as caught:
        two.review()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file) == ("broken-report", f"reports/{name}.json")
    assert finding.fix


def test_a_revision_from_before_a_field_was_there(two: Any) -> None:
    params = two.params(two.base)
    del params["data"]["sources"][0]["format"]
    (two.base / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
    assert "data.sources.triage.format" in two.page()


def test_a_params_yaml_that_cannot_be_read_is_named_at_its_commit(two):
    (two.head / "params.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(InputError) as error:
        two.review()
    assert [finding.file for finding in error.value.findings] == [f"{'b' * 12}:params.yaml"]
