"""A queued sweep of learning rates and seeds ends in one page that compares its runs."""

import re

import pytest


@pytest.mark.proof
def test_a_sweep_ends_in_a_comparison(toy):
    toy.run("dvc", "exp", "run", "--queue", "-S", "optim.lr=2e-5,5e-4")
    toy.run("dvc", "exp", "run", "--queue", "-S", "optim.lr=2e-5", "-S", "seed=2")
    toy.run("dvc", "exp", "run", "--run-all", "-j", "1")
    toy.run("hashtune", "report", "--experiments", "--output", "sweep.html")
    page = (toy.path / "sweep.html").read_text(encoding="utf-8")
    assert "3 runs" in page
    assert "eval loss against optim.lr" in page
    assert page.count("<polyline") >= 3 + 2 * 3  # metrics against the rate, two curves of each run
    judged = re.findall(r"eval loss: .*difference (within|beyond) seed noise", page)
    assert len(judged) == 1  # one other setting than the best


def test_the_page_of_a_built_run(toy):
    toy.run("hashtune", "report")
    page = (toy.path / "build/report.html").read_text(encoding="utf-8")
    verdict = toy.report("gate")["verdict"]
    assert f"<strong>{verdict}</strong>" in page
    assert toy.report("train")["adapter_sha256"][:12] in page
    assert page.count("<article") == 13  # six test items and seven suite items
    toy.run("hashtune", "report", "HEAD", "--output", "head.html")
    head = (toy.path / "head.html").read_text(encoding="utf-8")
    assert head.replace("(HEAD)", "(workspace)") == page  # the cache holds what the folder holds


def test_no_other_file_is_replaced(toy):
    printed = toy.run("hashtune", "report", "--output", "params.yaml", code=2)
    assert "is no page of hashtune report" in printed
    printed = toy.run("hashtune", "report", "nowhere", "neither", code=2)
    assert printed.count("[no-run]") == 2
