"""What several runs say together, with figures that can be checked by hand."""

import pytest

from hashtune.report.comparison import comparison_page
from hashtune.report.runs import read_run
from hashtune.report.several import Metric, groups, seed_spread, sentences, varied
from hashtune.report.sources import Workspace

SCORE = Metric("score", "evaluate", "task.scores", higher=True)  # mean of a and b = 1.0


@pytest.fixture
def runs(make_run):
    def read(*settings):
        return [
            read_run(Workspace(make_run(f"run{place}", **setting), label=f"run{place}"))
            for place, setting in enumerate(settings)
        ]

    return read


def test_what_varies_and_the_groups(runs):
    found = runs({"lr": 0.1, "seed": 1}, {"lr": 0.1, "seed": 2}, {"lr": 0.2, "seed": 1})
    assert varied(found) == ["optim.lr", "seed"]
    assert [(group.name, len(group.runs)) for group in groups(found)] == [
        ("optim.lr=0.1", 2),
        ("optim.lr=0.2", 1),
    ]


def test_the_spread_across_seeds(runs):
    """Means 0.7 and 0.8: deviation sqrt(2 * 0.05^2 / 1) = 0.0707, one degree of freedom."""
    found = groups(runs({"seed": 1, "score": 0.4}, {"seed": 2, "score": 0.6}))
    spread = seed_spread(found, SCORE)
    assert (spread.deviation, spread.degrees) == (pytest.approx(0.0707106781), 1)
    assert seed_spread(groups(runs({"seed": 1})), SCORE) is None


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (0.98, "difference within seed noise"),  # means 0.75 and 0.99, noise 1.1
        (3.0, "difference beyond seed noise"),  # means 0.75 and 2.0
    ],
)
def test_a_difference_is_judged_by_the_seeds(runs, score, words):
    """Student's t of one degree of freedom: 12.706 * 0.0707 * sqrt(1/2 + 1) = 1.10. Two standard
    errors (0.17) would call 0.98 better in 3 of 10 comparisons of equal settings."""
    found = runs(
        {"lr": 0.1, "seed": 1, "score": 0.4},
        {"lr": 0.1, "seed": 2, "score": 0.6},
        {"lr": 0.2, "seed": 1, "score": score},
    )
    [line] = sentences(groups(found), SCORE)
    assert f"{words} (1.1 at 95 %, 0.071 across seeds, 1 degree of freedom)." in line
    assert line.startswith("score: optim.lr=0.2 has")


def test_more_seeds_decide_more(runs):
    """Four seeds, means 0.7, 0.8, 0.7, 0.8: deviation sqrt(4 * 0.05^2 / 3) = 0.0577 and noise
    3.182 * 0.0577 * sqrt(1/4 + 1) = 0.205; 0.99 is beyond it."""
    found = [{"lr": 0.1, "seed": seed, "score": 0.4 + 0.2 * (seed % 2)} for seed in (1, 2, 3, 4)]
    [line] = sentences(groups(runs(*found, {"lr": 0.2, "seed": 1, "score": 0.98})), SCORE)
    assert "beyond seed noise (0.21 at 95 %, 0.058 across seeds, 3 degrees of freedom)." in line


def test_a_repetition_is_no_other_seed(runs):
    """Planted: the same spec twice (a commit and its experiment) had a spread of 0, so that any
    difference was beyond it."""
    found = groups(runs({"seed": 1}, {"seed": 1}, {"lr": 0.2, "seed": 1, "score": 0.9}))
    assert seed_spread(found, SCORE) is None
    [line] = sentences(found, SCORE)
    assert "is unknown" in line


def test_seeds_with_one_value_claim_nothing(runs):
    found = groups(runs({"seed": 1}, {"seed": 2}, {"lr": 0.2, "seed": 1, "score": 0.9}))
    [line] = sentences(found, SCORE)
    assert "is unknown: all seeds gave the same value." in line


def test_without_seeds_nothing_is_claimed(runs):
    [line] = sentences(groups(runs({"lr": 0.1}, {"lr": 0.2, "score": 0.9})), SCORE)
    assert "is unknown" in line


def test_lower_is_better_for_a_loss(runs):
    loss = Metric("score", "evaluate", "task.scores", higher=False)
    [line] = sentences(groups(runs({"lr": 0.1}, {"lr": 0.2, "score": 0.9})), loss)
    assert line.startswith("score: optim.lr=0.1 has 0.75")


def test_the_page_of_a_sweep(runs):
    page = comparison_page(runs({"lr": 0.1}, {"lr": 0.2, "score": 0.9}, {"lr": 0.4}))
    assert "mean test score against optim.lr" in page
    assert page.count('class="pass">pass<') == 3
    assert "<h2>Curves</h2>" in page


def test_the_page_of_one_spec(runs):
    assert "The runs have one spec." in comparison_page(runs({}, {}))
    assert "differ in their seeds alone" in comparison_page(runs({"seed": 1}, {"seed": 2}))
