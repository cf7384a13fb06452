"""`dvc plots show` and the page draw the same points: DVC's answer beside what the page reads."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from hashtune.report.runs import read_run
from hashtune.report.single import single_page
from hashtune.report.sources import Workspace

CHARTS = ("Loss per trained token", "Learning rate", "Gradient norm")


@pytest.fixture
def plotted(root, make_run):
    """The hand-made run with all four curves as a DVC project with this one's plots."""
    folder = make_run()
    for name in ("lr", "grad_norm"):
        file = folder / f"build/train/curves/plots/metrics/train/{name}.tsv"
        file.write_text(f"step\t{name}\n1\t0.5\n2\t0.25\n", encoding="utf-8")
    plots = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["plots"]
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"plots": plots}), encoding="utf-8")
    (folder / "reports/plots").mkdir()
    shutil.copy(root / "reports/plots/lengths.tsv", folder / "reports/plots")
    return folder


def dvc(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


PLOTS = {"learning rate": "train/lr", "gradient norm": "train/grad_norm"}  # of one file each


def test_the_same_curves(plotted):
    dvc(plotted, "init", "--no-scm", "--quiet")
    shown = json.loads(dvc(plotted, "plots", "show", "--json"))["data"]
    found = {}
    for plot in ("loss", *PLOTS):
        [chart] = shown[plot]
        for point in chart["content"]["data"]["values"]:
            name = PLOTS.get(plot) or point["filename"].removesuffix(".tsv")
            value = float(point[name.rpartition("/")[2]])
            found.setdefault(name, []).append((int(point["step"]), value))
    curves = read_run(Workspace(plotted)).curves
    assert found == curves
    assert found["eval/loss"] == [(1, 2.0), (3, 1.0), (5, 1.5)]
    titles = single_page(read_run(Workspace(plotted)))
    assert all(f"<title>{name}</title>" in titles for name in CHARTS)
