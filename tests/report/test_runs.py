"""What is read of a run, from its folder, from a commit and from the DVC cache."""

import hashlib
import json
import subprocess

import pytest

from hashtune.errors import InputError
from hashtune.report.runs import Pair, read_run
from hashtune.report.sources import Workspace, commit_source, experiments


def git(root, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", root]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_folder(make_run):
    run = read_run(Workspace(make_run()))
    assert run.label == "workspace"
    assert run.curves == {
        "eval/loss": [(1, 2.0), (3, 1.0), (5, 1.5)],
        "train/loss": [(1, 2.5), (2, 2.0)],
    }
    assert [(p.id, p.base_score, p.adapter_score) for p in run.task] == [
        ("t1", 0.5, 1.0),  # means of two fields
        ("t2", 1.0, 1.0),
    ]
    assert run.suites == [Pair("s1", "facts", "Capital of France?", "", "Paris", "Rome", 1.0, 0.0)]
    assert run.machine["train"]["peak_memory_gb"] == 2.25
    assert run.figure("plan", "needed_gb") == 2.5
    assert run.figure("plan", "nothing.there") is None


def test_a_measurement_of_another_run_is_dropped(make_run):
    """Planted: the adapter changed after the machine report was written."""
    root = make_run()
    (root / "build/train/adapter/adapter_model.safetensors").write_text("others", encoding="utf-8")
    assert read_run(Workspace(root)).machine == {}


def test_an_empty_folder_is_an_empty_run(tmp_path):
    run = read_run(Workspace(tmp_path))
    assert (run.reports, run.curves, run.task, run.hashes) == ({}, {}, [], [])


def put(cache, data):
    """An object of a DVC cache; gives its md5."""
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    file = cache / "files/md5" / md5[:2] / md5[2:]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return md5


@pytest.fixture
def repository(make_run, tmp_path):
    """The run as a commit: reports in Git, curves in a cache, nothing of build/ left."""
    root, cache = make_run(), tmp_path / "cache"
    file = root / "build/train/curves/plots/metrics/eval/loss.tsv"
    listing = [{"md5": put(cache, file.read_bytes()), "relpath": "plots/metrics/eval/loss.tsv"}]
    listing.append({"md5": "0" * 32, "relpath": "plots/metrics/eval/gone.tsv"})
    data = json.dumps(listing).encode()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest() + ".dir"
    place = cache / "files/md5" / md5[:2] / md5[2:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    out = f"{{path: build/train/curves, md5: {md5}}}"
    (root / "dvc.lock").write_text(f"stages:\n  train:\n    outs: [{out}]\n", encoding="utf-8")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "params.yaml", "reports", "data", "dvc.lock")
    git(root, "commit", "-q", "-m", "run")
    git(root, "update-ref", "refs/exps/ab/cdef/brave-run", "HEAD")
    return root, cache


def test_a_commit_and_its_cache(repository):
    root, cache = repository
    run = read_run(commit_source(root, "main", cache))
    assert run.curves == {"eval/loss": [(1, 2.0), (3, 1.0), (5, 1.5)]}
    assert run.task == []  # of these outputs dvc.lock knows nothing
    assert [(stage, path) for stage, path, _ in run.hashes] == [("train", "build/train/curves")]


def test_an_experiment_has_its_name(repository):
    root, cache = repository
    assert [name for name, _ in experiments(root)] == ["brave-run"]
    run = read_run(commit_source(root, "brave-run", cache))
    assert (run.label, run.figure("gate", "verdict")) == ("brave-run", "pass")


def test_an_unknown_name_is_refused(repository):
    root, cache = repository
    with pytest.raises(InputError, match="no revision and no experiment"):
        commit_source(root, "--upload-pack=x", cache)


@pytest.mark.parametrize("text", ["{", "[]", '{"verdict": "pass", "rules": 3}', '{"rules": [{}]}'])
def test_a_broken_report_is_a_finding(make_run, text):
    root = make_run()
    (root / "reports/gate.json").write_text(text, encoding="utf-8")
    (root / "reports/plan.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_run(Workspace(root))
    assert {(finding.rule, finding.file) for finding in error.value.findings} == {
        ("broken-report", "reports/gate.json"),
        ("broken-report", "reports/plan.json"),
    }


@pytest.mark.parametrize(
    ("data", "rule"), [(b"\xff\xfe", "not-utf8"), (b"a: [", "yaml"), (b"[1]", "yaml")]
)
def test_a_broken_params_file_is_a_finding(make_run, data, rule):
    root = make_run()
    (root / "params.yaml").write_bytes(data)
    with pytest.raises(InputError) as error:
        read_run(Workspace(root))
    assert [(found.rule, found.file) for found in error.value.findings] == [(rule, "params.yaml")]
