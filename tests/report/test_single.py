"""The page of one run: what stands on it, in which order, and that data never becomes markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hashtune.evaluation.gate_suites import suite_rules
from hashtune.evaluation.statistics import difference_interval
from hashtune.report.charts import Mark, Series, Span, bar_chart, interval_chart, line_chart
from hashtune.report.gains import loss_marks, slice_gains, task_gains
from hashtune.report.runs import Pair, read_run
from hashtune.report.single import kind_of, single_page
from hashtune.report.sources import Workspace
from hashtune.spec.schema import EvalGate


class Tags(HTMLParser):
    """Counts tags, collects what they would load."""

    def __init__(self):
        super().__init__()
        self.seen, self.loads, self.handlers = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def parsed(page):
    tags = Tags()
    tags.feed(page)
    return tags


def test_verdict_first(make_run):
    page = single_page(read_run(Workspace(make_run())))
    order = [
        "<strong>pass</strong>",
        "Why",
        "Training",
        "Gains",
        "Data, packing",
        "Answers",
        "Lineage",
    ]
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert "a gains &lt; 1 &amp; more" in page
    assert "measured peak" in page


def test_hostile_answers_are_text(make_run):
    tags = parsed(single_page(read_run(Workspace(make_run()))))
    assert tags.seen.count("script") == 1
    assert "img" not in tags.seen
    assert tags.handlers == []
    assert tags.loads == ["#main"]  # the skip link; nothing is fetched


def test_the_same_run_gives_the_same_page(make_run):
    run = Workspace(make_run())
    assert single_page(read_run(run)) == single_page(read_run(run))


def test_an_unfinished_run_says_so(tmp_path):
    page = single_page(read_run(Workspace(tmp_path)))
    assert "no verdict: the gate did not run" in page
    assert "No curves here" in page


def pair(base, adapter, old, new):
    return Pair("x", "part", "", "", base, adapter, old, new)


def test_kinds_of_answers():
    kinds = [("a", "b", 1, 0), ("a", "b", 0, 1), ("a", "b", 1, 1), ("a", "a", 0, 0)]
    assert [kind_of(pair(*kind)) for kind in kinds] == ["lost", "won", "changed", "same"]


def test_gains_of_a_slice():
    """Four items, each won: the lower bound stays below 1, that of a bootstrap did not."""
    [span] = slice_gains([pair("a", "b", 0.0, 1.0)] * 4, confidence=0.95)
    drop = difference_interval([0.0] * 4, [1.0] * 4, confidence=0.95, resamples=1, seed=0)
    assert (span.name, span.point, span.upper) == ("part (4)", 1.0, 1.0)
    assert span.lower == -drop.upper
    # of Tango's score interval for n of n won: (n - z^2) / (n + z^2) with z = 1.644854
    assert span.lower == pytest.approx((4 - 2.705543) / (4 + 2.705543), abs=1e-6)


GATE = EvalGate(
    task_min=0.5,
    task_metric_min_gain=0.1,
    regression_max_drop=0.1,
    slice_max_drop=0.25,
    unfinished_max_share=0.05,
    confidence=0.95,
    discordant_share=0.1,
    min_task_items=20,
    min_regression_items=20,
)


def test_page_and_gate_have_one_interval():
    """20 items, 6 lost and 1 won: the gate's rule of the slice, with its sign turned; 20 test items
    of two fields, by field, where the mean of the two would be neither."""
    old, new = [1.0] * 6 + [0.0] + [1.0] * 13, [0.0] * 6 + [1.0] * 14
    pairs = [pair("a", "b", first, second) for first, second in zip(old, new, strict=True)]
    [span] = slice_gains(pairs, confidence=0.95)
    sides = [
        [{"slice": "part", "score": score, "chance": 0.0} for score in scores]
        for scores in (old, new)
    ]
    rules = {rule.name: rule for rule in suite_rules(*sides, GATE, noise=0.0)}
    lower, upper = rules["regression.slice.part"].interval
    assert (span.point, span.lower, span.upper) == (-0.25, -upper, -lower)
    fields = [
        replace(p, fields={"a": (p.base_score, p.adapter_score), "b": (0.0, 1.0)}) for p in pairs
    ]
    first, second = task_gains(fields, confidence=0.95)
    assert (first.name, first.point, second.name, second.point) == (
        *("task.a (20)", -0.25),
        *("task.b (20)", 1.0),
    )


def test_best_and_overfitting_are_marked():
    losses = [(1, 2.0), (3, 1.0), (5, 1.01), (7, 1.03), (9, 1.5)]
    best = Mark(3, "adapter, lowest eval loss")
    assert loss_marks(losses, 3) == [best, Mark(7, "overfitting")]
    assert loss_marks(losses[:3], None) == [Mark(3, "lowest eval loss")]  # 1 % is no rise
    assert loss_marks([], 4) == [Mark(4, "adapter")]


def test_an_adapter_that_is_not_the_best_is_told_apart():
    """checkpoint.select last: the best checkpoint is another one, and was not marked."""
    losses = [(1, 2.0), (3, 1.0), (9, 1.5)]
    marks = loss_marks(losses, 9)
    words = [(mark.x, mark.words) for mark in marks]
    assert words == [(9, "adapter"), (3, "lowest eval loss"), (9, "overfitting")]
    chart = line_chart("t", [Series("a", losses)], x="step", y="nats", marks=marks)
    heights = re.findall(r'y="([0-9.]+)"[^>]*>(?:adapter|lowest eval loss|overfitting)<', chart)
    assert heights == ["24.0", "38.0", "52.0"]  # under one another, so that none hides another


def test_a_line_lies_where_its_points_are():
    """x from 0 to 10 over 64..626, y from 0 to 1 over 224..14."""
    chart = line_chart("t", [Series("a", [(0, 0.0), (5, 1.0), (10, 0.5)])], x="step", y="nats")
    assert 'points="64.0,224.0 345.0,14.0 626.0,119.0"' in chart
    assert line_chart("t", [Series("a", [])], x="", y="") == ""


def test_bars_and_intervals_are_to_scale():
    chart = bar_chart("t", [("a", 2.0), ("b", 1.0)], unit="GB")
    assert 'width="330.0"' in chart
    assert 'width="165.0"' in chart
    whisker = interval_chart("t", [Span("a", 0.5, 0.0, 1.0, limit=0.25)])
    assert 'x1="200.0" x2="550.0"' in whisker
    assert 'class="limit" x1="287.5"' in whisker
