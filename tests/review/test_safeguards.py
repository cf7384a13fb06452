"""Changes to the checks themselves: the code that judges, what stages rerun for, workflows."""

import pytest


def replaced(folder, old, new):
    file = folder / "dvc.yaml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def told(two, words):
    return [notice for notice in two.review().notices if words in notice]


DROP, SLICE = "      - eval_gate.regression_max_drop\n", "      - eval_gate.slice_max_drop\n"


def test_a_setting_that_no_longer_reruns_a_stage(two):
    """Planted: without the margin among the params of gate, a looser one keeps the old report."""
    replaced(two.head, DROP, "")
    [notice] = told(two, "no longer depends on")
    assert notice.startswith(
        "In dvc.yaml the stage `gate` no longer depends on `eval_gate.regression_max_drop`: a"
    )


def test_an_input_that_no_longer_reruns_a_stage(two):
    replaced(two.head, "      - build/regress\n    params", "    params")
    assert len(told(two, "`gate` no longer depends on `build/regress`")) == 1


def test_a_section_in_place_of_its_settings_is_no_loss(two):
    replaced(two.head, DROP + SLICE, "      - eval_gate\n")
    assert told(two, "no longer depends on") == []


def test_a_stage_that_is_gone(two):
    replaced(two.head, "  regress:\n", "  other:\n")
    assert len(told(two, "dvc.yaml lost the stages `regress`")) == 1


def test_an_output_that_dvc_no_longer_keeps(two):
    replaced(two.base, "      - build/release\n", "      - build/release\n      - build/more\n")
    assert len(told(two, "the stage `release` no longer writes `build/more`")) == 1


@pytest.mark.parametrize(
    ("module", "found"),
    [("evaluation/gate", 1), ("stages/gate", 1), ("training/loss", 0), ("report/look", 0)],
)
def test_code_that_judges(two, module, found):
    """A changed rule of the gate is a changed meaning of the verdict, though no setting changed."""
    file = two.head / f"src/hashtune/{module}.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\n# a comment\n", encoding="utf-8")
    assert told(two, "Code that answers, scores or judges") == []
    file.write_text(f"{text}\nPLANTED = 1\n", encoding="utf-8")
    notices = told(two, "Code that answers, scores or judges")
    assert len(notices) == found
    assert all(f"(`hashtune.{module.replace('/', '.')}`)" in notice for notice in notices)


def test_a_workflow_that_asks_less(two):
    for folder, text in ((two.base, "run: hashtune check"), (two.head, "run: true")):
        (folder / ".github/workflows").mkdir(parents=True)
        (folder / ".github/workflows/review.yml").write_text(text, encoding="utf-8")
        (folder / ".dvcignore").write_text("same", encoding="utf-8")
    [notice] = told(two, "What checks a change was itself changed")
    assert "(`.github/workflows/review.yml`)" in notice
