"""The veto of a slice: exact, with Holm's correction, and silent where no loss could show."""

from itertools import chain

import pytest

from hashtune.evaluation.evidence import Evidence, Side
from hashtune.evaluation.gate import decide
from hashtune.spec.schema import EvalGate

GATE = {
    "task_min": 0.5,
    "task_metric_min_gain": 0.1,
    "regression_max_drop": 0.1,
    "slice_max_drop": 0.25,
    "unfinished_max_share": 0.05,
    "confidence": 0.95,
    "discordant_share": 0.1,
    "min_task_items": 20,
    "min_regression_items": 20,
}


def rows(name, old, new, chance):
    return [
        {
            "id": f"{name}{i}",
            "slice": name,
            "chance": chance,
            "scores": (float(a), float(b)),
        }
        for i, (a, b) in enumerate(zip(old, new, strict=True))
    ]


def slice_of(name, *, lost=0, won=0, right=0, wrong=0, chance=0.0):
    """Items lost, won, right on both sides, wrong on both sides."""
    old = [1] * lost + [0] * won + [1] * right + [0] * wrong
    new = [0] * lost + [1] * won + [1] * right + [0] * wrong
    return rows(name, old, new, chance)


def judge(*slices, **changes):
    items = list(chain(*slices))

    def side(which):
        task = [
            {
                "id": f"t{i}",
                "prompt": "p",
                "answer": f"{which}",
                "finished": True,
                "scores": {"x": float(which)},
                "majority": {"x": 0.0},
            }
            for i in range(40)
        ]
        suites = [{**item, "score": item["scores"][which], "output": f"{which}"} for item in items]
        return Side(task, suites, {}, {})

    verdict = decide(Evidence(base=side(0), adapter=side(1)), EvalGate(**(GATE | changes)))
    return verdict, {rule.name.removeprefix("regression.slice."): rule for rule in verdict.rules}


BIG = slice_of("big", right=188)


def test_a_slice_fails_when_its_loss_is_large_and_no_accident():
    """p = 1/64 for 6 lost, twice that with the other slice's test: 1/32."""
    verdict, rules = judge(slice_of("small", lost=6, right=6), BIG)
    rule = rules["small"]
    assert (verdict.verdict, verdict.summary) == ("fail", "fails 1 of 9: regression.slice.small")
    assert (rule.verdict, rule.bound, rule.items, rule.value) == ("fail", 1 / 32, 12, 0.5)
    assert "6 items lost, 0 won of 12, p = 0.0312" in rule.meaning
    assert rules["big"].verdict == "pass"


def test_asking_once_more_takes_the_veto_away():
    """Planted: no correction. With a third slice 3/64 still vetoes, with a fourth 4/64 does not;
    uncorrected, 1/64 would in both."""
    small = slice_of("small", lost=6, right=6)
    others = [slice_of(name, right=60) for name in "abc"]
    assert judge(small, *others[:2])[1]["small"].verdict == "fail"
    verdict, rules = judge(small, *others)
    assert (rules["small"].bound, rules["small"].verdict) == (4 / 64, "not enough evidence")
    assert verdict.verdict == "not enough evidence"


def test_a_large_loss_within_chance_names_the_items():
    """4 of 12: s^2 = 5/13 - 1/9 = 0.2735; level 0.975: (1.95996 + 0.84162)^2 = 7.8489;
    7.8489 * 0.2735 * 9 = 19.3."""
    verdict, rules = judge(slice_of("small", lost=4, right=8), BIG)
    rule = rules["small"]
    assert (rule.verdict, rule.items_needed) == ("not enough evidence", 20)
    assert "within chance: about 20 items like these would decide" in rule.meaning
    assert verdict.verdict == "not enough evidence"


def test_a_sure_loss_that_is_allowed_passes():
    verdict, rules = judge(slice_of("small", lost=8, right=32), BIG)  # 0.2, p = 1/256
    assert (rules["small"].verdict, verdict.verdict) == ("pass", "pass")
    assert rules["small"].bound == 2 / 256
    seen = f"a true drop of {rules['small'].detectable:.4g} would fail in four runs of five"
    assert seen in rules["small"].meaning


@pytest.mark.parametrize(
    ("right", "chance", "word"),
    [
        (8, 0.25, "cannot detect a loss"),  # 0.4 = 0.25 + 0.15
        (9, 0.25, "pass"),  # 0.45
        (3, 0.0, "cannot detect a loss"),  # generated answers: 0.15
        (4, 0.0, "cannot detect a loss"),  # 0.2: it could not lose more than the allowed 0.25
        (6, 0.0, "pass"),  # 0.3: 6 lost would be 2/64
    ],
)
def test_a_slice_near_chance_is_named_and_never_passes(right, chance, word):
    near = slice_of("near", right=right, wrong=20 - right, chance=chance)
    verdict, rules = judge(near, BIG)
    assert rules["near"].verdict == word
    blind = word != "pass"
    assert ("cannot show here" in rules["near"].meaning) == blind
    assert (rules["near"].detectable is None) == blind
    assert verdict.verdict == "pass"
    rest = "; no loss could show in regression.slice.near" if blind else ""
    assert verdict.summary == f"passes all {8 if blind else 9} rules{rest}"


def test_items_near_chance_are_no_evidence():
    near = slice_of("near", right=30, wrong=70, chance=0.25)
    verdict, rules = judge(near, slice_of("few", right=19))
    assert rules["regression.items"].value == 19
    assert rules["regression.items"].items_needed == 20
    assert verdict.verdict == "not enough evidence"
    assert judge(near, slice_of("few", right=20))[0].verdict == "pass"


def test_chance_is_the_mean_over_the_items_of_a_slice():
    """Half with two choices, half with four: 0.375, so that 0.5 is within 0.15."""
    mixed = [
        *slice_of("mixed", right=10, chance=0.5),
        *slice_of("mixed", wrong=10, chance=0.25),
    ]
    _, rules = judge(mixed, BIG)
    assert "within 0.15 of the 0.375 that guessing gives" in rules["mixed"].meaning


def test_a_slice_too_small_for_a_veto_says_so_but_a_seen_loss_is_not_hidden():
    """5 items, two slices: 2/32 is never below 0.05."""
    verdict, rules = judge(slice_of("tiny", right=5), BIG)
    assert rules["tiny"].verdict == "cannot detect a loss"
    assert "losing all 5 items" in rules["tiny"].meaning
    assert verdict.verdict == "pass"
    verdict, rules = judge(slice_of("tiny", lost=2, right=3), BIG)
    assert rules["tiny"].verdict == verdict.verdict == "not enough evidence"


def test_a_loss_below_chance_still_has_its_veto():
    """Near chance nothing passes, but 12 of 40 lost and none won is no accident."""
    verdict, rules = judge(slice_of("near", lost=12, wrong=28, chance=0.25), BIG)
    assert rules["near"].verdict == verdict.verdict == "fail"


def test_scores_between_count_as_lost_and_won():
    soft = rows("soft", [0.9] * 20, [0.5] * 20, 0.0)
    _, rules = judge(soft, BIG)
    assert (rules["soft"].verdict, rules["soft"].value) == ("fail", pytest.approx(0.4))
