"""The user's own metric: pinned, run from the pinned bytes, its scores checked."""

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.metrics.task import majority_scores, score_task
from hashtune.spec.schema import Task, UserMetric
from hashtune.spec.user_metric import user_metric_findings
from hashtune.writers import sha256_bytes

GOOD = """
import json


def score(answers, references):
    return [float(a[:1] == b[:1]) for a, b in zip(answers, references)]
"""


def task(source, folder, path="mymetrics.score", pin=None, metric="user"):
    file = folder / (path.rpartition(".")[0].replace(".", "/") + ".py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    user = UserMetric(path=path, sha256=pin or sha256_bytes(source.encode()))
    return Task(metric=metric, user_metric=user, fields=[], json_schema=None, base_instruction=None)


def refused(source, folder, **changes):
    with pytest.raises(InputError) as caught:
        score_task(task(source, folder, **changes), ["a"], ["b"], root=folder)
    return [finding.message for finding in caught.value.findings]


def returning(value):
    return f"def score(answers, references):\n    return {value}\n"


@pytest.mark.parametrize("path", ["mymetrics.score", "eval.mine.score"])
def test_its_scores_count(tmp_path, path):
    own = task(GOOD, tmp_path, path)
    found = score_task(own, ["yes", "no", "No"], ["yo", "yes", "No"], root=tmp_path)
    assert found == {"answer": [1.0, 0.0, 1.0]}
    assert majority_scores(own, ["Ja", "Ja", "nein"], root=tmp_path) == {"answer": [1.0, 1.0, 0.0]}
    assert list(user_metric_findings(own, tmp_path)) == []


def test_a_changed_file_is_not_run(tmp_path):
    """Planted: the file would leave a trace if any of it ran."""
    trace = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    (message,) = refused(trace + GOOD, tmp_path, pin="0" * 64)
    assert f"the spec pins {'0' * 64}" in message
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_not_there_or_leaves_the_project(tmp_path):
    inside = tmp_path / "project"
    inside.mkdir()
    own = task(GOOD, tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        score_task(own, ["a"], ["b"], root=inside)
    (inside / "mymetrics.py").symlink_to(tmp_path / "mymetrics.py")
    with pytest.raises(InputError, match="leaves the project"):
        score_task(own, ["a"], ["b"], root=inside)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("[1.5]", "item 0: 1.5 is no score in [0, 1]"),
        ("[float('nan')]", "item 0: nan is no score in [0, 1]"),
        ("[True]", "item 0: True is no score in [0, 1]"),
        ("['1']", "item 0: '1' is no score in [0, 1]"),
        ("[1.0, 1.0]", "returned 2 values, where a list of 1 scores is wanted"),
        ("[]", "returned 0 values, where a list of 1 scores is wanted"),
        ("0.5", "returned float, where a list of 1 scores is wanted"),
        ("1 / 0", "mymetrics.score failed: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_list_of_scores_is_refused(tmp_path, value, told):
    assert refused(returning(value), tmp_path) == [told]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def score(:", "is no Python"),
        ("def other(a, b): pass", "defines no function score"),
        (f"import helper\n{GOOD}", "imports helper, which lies in the project"),
        (f"def f():\n    from hashtune import errors\n{GOOD}", "imports hashtune, which lies in"),
        (f"from . import x\n{GOOD}", "imports relatively, which lies in the project"),
        (f"raise ValueError('no')\n{GOOD}", "cannot be imported: ValueError: no"),
    ],
)
def test_sources_that_are_refused(tmp_path, source, told):
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "src/hashtune").mkdir(parents=True)
    assert refused(source, tmp_path)[0].startswith(told)


def test_the_spec_names_it_if_and_only_if_it_counts(tmp_path):
    own = task(GOOD, tmp_path)
    for changes, told in (
        ({"user_metric": None}, "is null"),
        ({"metric": "token_f1"}, "is given, and data.task.metric is token_f1"),
    ):
        (finding,) = user_metric_findings(own.model_copy(update=changes), tmp_path)
        assert (finding.rule, finding.field) == ("contradiction", "data.task.user_metric")
        assert finding.message == told


@pytest.mark.parametrize("path", ["score", "a/b.score", ".score", "..x.score", "a.b-c", ""])
def test_paths_that_are_no_dotted_names(path):
    with pytest.raises(ValueError, match="path"):
        UserMetric(path=path, sha256="0" * 64)
