"""Heads that are wrong or odd by themselves: the review says so, and tells the rest."""

import json

import pytest

from hashtune.errors import InputError
from hashtune.review.compare import compare
from hashtune.review.consequences import Group
from hashtune.review.page import markdown
from hashtune.review.revisions import Span


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("optim.lr", "fast", "at `optim.lr`: `Input should be a valid number"),
        ("batch.micro", "fast", "at `batch.micro`: `Input should be a valid integer"),
        ("hardware.price_per_hour", "cheap", "at `hardware.price_per_hour`: `Input"),
        ("data.sources", 3, "at `data.sources`: `Input should be a valid list"),
        ("data.test", None, "at `data.test`: `needs the fields"),
        ("regression.suites", [{"name": "x"}], "at `regression.suites[0].uri`: `is missing`"),
        ("data.eval.format", "xml", "at `data.eval.format`: `Input should be"),
        ("optim.rate", 1.0, "at `optim.rate`: `unknown key"),
    ],
)
def test_an_invalid_value_is_a_warning(two, key, value, words):
    two.set({key: value})
    review = two.review()
    [notice] = [notice for notice in review.notices if words in notice]
    assert "[schema]" in notice
    assert any(change.key.startswith(key) for change in review.changes)
    assert markdown(review).count("The head's spec is invalid") >= 1


def test_a_contradiction_is_a_warning(two):
    """bf16 on hardware without a unit for it."""
    two.set({"precision": "bf16", "hardware.peak_tflops.bf16": None})
    assert any("at `precision`" in n and "[no-unit]" in n for n in two.review().notices)


def test_a_valid_head_has_no_such_warning(two):
    two.set({"optim.lr": 0.0005})
    assert not any("invalid" in notice for notice in two.review().notices)


def test_a_removed_key(two):
    params = two.params(two.head)
    del params["batch"]["micro"]
    (two.head / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
    review = two.review()
    assert any("at `batch.micro`: `is missing`" in notice for notice in review.notices)
    assert review.batch == (1, None)


def test_a_moved_data_file_changes_no_tokens(two):
    """Planted: it was told as other training data, though its pin is the same."""
    for role, name in (("sources.0", "train"), ("test", "test")):
        old = two.head / f"data/triage/{name}.jsonl"
        old.rename(old.with_name(f"moved_{name}.jsonl"))
        two.set({f"data.{role}.uri": f"data/triage/moved_{name}.jsonl"})
    review = two.review()
    assert [change.groups for change in review.changes] == [(Group.NAMES,)] * 2
    assert review.rows == []
    assert not any("test set changed" in notice for notice in review.notices)
    assert "names another place of the same content" in two.page()


def test_a_moved_file_with_another_pin_is_other_data(two):
    two.set({"data.sources.0.uri": "data/triage/test.jsonl", "data.sources.0.sha256": "1" * 64})
    assert {change.groups for change in two.review().changes} == {(Group.TOKENS,)}


def test_another_function_of_a_pinned_file_is_no_move(two):
    """Its path names the function, so the same pin is no same content."""
    for folder, name in ((two.base, "own.first"), (two.head, "own.second")):
        user = {"data.task.user_metric": {"path": name, "sha256": "2" * 64}}
        type(two)(two.base, folder).set(user)
    [change] = two.review().changes
    assert change.groups == (Group.VERDICT,)


def test_a_base_that_is_no_ancestor(two):
    span = Span("a" * 40, "b" * 40, diverged=True)
    first, *_ = compare(span, two.base, two.head).notices
    assert first.startswith("The base is no ancestor of the head")


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("dvc.yaml", "stages: [", "yaml"),
        ("dvc.yaml", "stages: {a: 3}", "no-pipeline"),
        ("dvc.yaml", None, "no-pipeline"),
        ("requirements.lock", None, "no-pipeline"),
        ("dvc.lock", "a: [", "broken-lock"),
        ("src/hashtune/training/loss.py", "def (", "syntax"),
    ],
)
def test_a_broken_file_is_named(two, name, text, rule):
    file = two.head / name
    file.unlink()
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        two.review()
    [finding] = error.value.findings
    assert finding.rule == rule
    assert str(finding.file).endswith(name)


@pytest.mark.parametrize("rules", [3, [{}], [3]])
def test_a_gate_whose_rules_are_none_is_named(two, rules):
    text = json.dumps({"verdict": "pass", "rules": rules})
    (two.head / "reports/gate.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="broken-report"):
        two.review()
