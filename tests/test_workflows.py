"""What GitHub and the commit hook run: read as data, since a workflow that is wrong is not red.

A step that is missing, without the whole history or without its condition would only show on the
day when a bad adapter passes.
"""

import re
from fnmatch import fnmatchcase

import pytest
import yaml

PULL_REQUEST = ("hashtune check", "dvc repro --pull --allow-missing", 'hashtune review "$BASE...')
REGISTERED = ("hashtune check --gate",)


def workflow(root, name):
    text = (root / f".github/workflows/{name}.yml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  texts alone, `on` too


def steps(found):
    [job] = found["jobs"].values()
    return job["steps"]


def faults(found, commands):
    """What the workflow lacks: the whole history, a command, or their order."""
    kept = steps(found)
    [checkout] = [step for step in kept if step.get("uses", "").startswith("actions/checkout@")]
    lacking = [] if checkout.get("with", {}).get("fetch-depth") == "0" else ["history"]
    lines = [line for step in kept for line in step.get("run", "").splitlines()]
    places = []
    for command in commands:
        at = [
            n
            for n, line in enumerate(lines)
            if re.match(rf"(\.venv/bin/)?{re.escape(command)}", line)
        ]
        places += at[:1]
        lacking += [] if at else [command]
    return lacking + ([] if places == sorted(places) else ["order"])


def test_a_pull_request_is_rebuilt_checked_and_reviewed(root):
    found = workflow(root, "review")
    assert found["on"] == "pull_request"
    assert faults(found, PULL_REQUEST) == []
    [checkout] = [step for step in steps(found) if "checkout@" in step.get("uses", "")]
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.head.sha }}"  # not the merge


def test_the_review_is_posted_whatever_a_step_before_it_said(root):
    """A head with an invalid spec is the one that a reviewer wants to read about."""
    found = workflow(root, "review")
    [review, comment] = [
        s for s in steps(found) if s.get("name", "").startswith(("review", "comm"))
    ]
    assert '>> "$GITHUB_STEP_SUMMARY"' in review["run"]
    assert "--body-file review.md" in comment["run"]
    assert all(step["if"].startswith("${{ !cancelled()") for step in (review, comment))
    assert found["permissions"]["pull-requests"] == "write"


@pytest.mark.parametrize("tag", ["triage@v1.0.0", "triage@v12.0.3", "triage#prod", "triage#dev#2"])
def test_a_tag_of_gto_is_judged(root, tag):
    """As GTO names versions and stages; `!` and `/` do not occur in ours."""
    found = workflow(root, "registered")
    assert any(fnmatchcase(tag, pattern) for pattern in found["on"]["push"]["tags"])
    assert faults(found, REGISTERED) == []
    assert not any(fnmatchcase("built", pattern) for pattern in found["on"]["push"]["tags"])


def without(found, command):
    kept = [step for step in steps(found) if not step.get("run", "").startswith(command)]
    return {**found, "jobs": {"only": {"steps": kept}}}


def test_a_workflow_that_asks_less_is_seen(root):
    """Planted: no check, no rebuild, a shallow clone."""
    found = workflow(root, "review")
    for command in ("hashtune check", "dvc repro --pull --allow-missing"):
        assert faults(without(found, command), PULL_REQUEST) == [command]
    shallow = [{k: v for k, v in step.items() if k != "with"} for step in steps(found)]
    assert faults({"jobs": {"only": {"steps": shallow}}}, PULL_REQUEST) == ["history"]


@pytest.mark.parametrize(
    ("file", "asked"),
    [
        ("params.yaml", True),
        ("conf/optim/adamw.yaml", True),
        ("data/triage/train.jsonl", True),
        ("docs/log.md", False),
    ],
)
def test_the_commit_hook_checks_the_spec(root, file, asked):
    config = yaml.safe_load((root / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    [hook] = [h for repo in config["repos"] for h in repo["hooks"] if h["id"] == "spec"]
    assert (hook["entry"], hook["language"]) == ("hashtune check", "system")
    assert hook["pass_filenames"] is False
    assert (re.search(hook["files"], file) is not None) is asked
