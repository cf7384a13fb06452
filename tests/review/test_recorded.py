"""Results that are not those of the spec: reports edited by hand, a lock of other settings."""

import json

import pytest

from hashtune.errors import InputError
from hashtune.review.recorded import Foreign, foreign


@pytest.fixture
def small(tmp_path):
    """A revision of two stages; gate.json holds "one", whose md5 is below."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/gate.json").write_text("one", encoding="utf-8")
    return tmp_path


ONE = "f97c5d29941bfb1b2fdab0874906ab82"  # printf one | md5sum
PARAMS = {"optim": {"lr": 0.1}}


def lock(*, report=ONE, made="a" * 32, took="a" * 32, lr=0.1):
    train = {"path": "build/train", "md5": made}
    return {
        "train": {"params": {"params.yaml": {"optim.lr": lr}}, "outs": [train]},
        "gate": {
            "deps": [{"path": "build/train", "md5": took}],
            "outs": [{"path": "reports/gate.json", "md5": report}],
        },
    }


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, Foreign()),
        ({"report": "b" * 32}, Foreign(reports=("reports/gate.json",))),
        ({"lr": 0.2}, Foreign(inputs=(("train", "optim.lr"),))),
        ({"took": "b" * 32}, Foreign(inputs=(("gate", "build/train"),))),
    ],
)
def test_what_speaks_against_results(small, changed, found):
    assert foreign(small, lock(**changed), PARAMS) == found


def test_a_report_that_is_gone_and_a_file_of_git_that_changed(small):
    made = lock()
    made["gate"]["deps"].append({"path": "suite", "md5": "c" * 32})
    assert not foreign(small, made, PARAMS)  # under DVC, or a folder: nothing is known
    (small / "suite").write_text("one", encoding="utf-8")
    (small / "reports/gate.json").unlink()
    found = foreign(small, made, PARAMS)
    assert found == Foreign(("reports/gate.json",), (("gate", "suite"),))


def test_what_is_told_already_is_left_out(small):
    assert foreign(small, lock(lr=0.2), PARAMS, told=["train"]) == Foreign()


@pytest.mark.parametrize("broken", [{"gate": 3}, {"gate": {"outs": [3]}}, {"gate": {"params": 3}}])
def test_a_lock_of_no_stages_is_named(small, broken):
    with pytest.raises(InputError, match="broken-lock"):
        foreign(small, broken, PARAMS)


def test_a_verdict_edited_by_hand(two):
    """Planted: a fail that was turned into a pass was shown as the head's verdict."""
    gate = two.head / "reports/gate.json"
    report = json.loads(gate.read_text(encoding="utf-8"))
    report["rules"][2]["value"] = 0.999
    gate.write_text(json.dumps(report), encoding="utf-8")
    review = two.review()
    assert not review.recorded
    [notice] = review.notices  # that release read another one follows from it
    assert notice.startswith(
        "In the head, `reports/gate.json` is not what dvc.lock records: edited by hand"
    )
    assert "0.999" not in two.page()


def test_a_lock_of_a_third_spec(two):
    """Planted: the head asks for 5e-4, its lock is of 3e-4, and its figures were shown."""
    two.set({"optim.lr": 0.0005})
    file = two.head / "dvc.lock"
    text = file.read_text(encoding="utf-8").replace("optim.lr: 0.001", "optim.lr: 0.0003")
    for stage in ("spec", "release"):
        text = text.replace(f"  {stage}:\n", f"  {stage}:\n    again: 1\n")
    file.write_text(text, encoding="utf-8")
    review = two.review()
    assert not review.recorded
    [notice] = [notice for notice in review.notices if "results of other inputs" in notice]
    assert "In the head" in notice
    assert "`train: optim.lr`" in notice
