"""A queued sweep of learning rates and seeds ends in one page that compares its runs."""

import re

import pytest

SWEEP = [("optim.lr=2e-5,5e-4",), ("optim.lr=2e-5", "seed=2")]


@pytest.mark.proof
def test_a_sweep_ends_in_a_comparison(toy):
    for settings in SWEEP:  # DVC composes afresh: without experiment=toy it is the demo's training
        overrides = [item for setting in ("experiment=toy", *settings) for item in ("-S", setting)]
        toy.run("dvc", "exp", "run", "--queue", *overrides)
    toy.run("dvc", "exp", "run", "--run-all", "-j", "1")
    toy.run("hashtune", "report", "--experiments", "--output", "sweep.html")
    page = (toy.path / "sweep.html").read_text(encoding="utf-8")
    assert "3 runs" in page
    assert "eval loss against optim.lr" in page
    assert page.count("<polyline") >= 3 + 2 * 3  # metrics against the rate, two curves of each run
    judged = re.findall(r"eval loss: .*difference (within|beyond) seed noise", page)
    assert len(judged) == 1  # one other setting than the best
