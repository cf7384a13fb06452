"""The gate: each rule passes, fails and lacks evidence; evidence that proves nothing is refused."""

import subprocess
import sys

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.evidence import Evidence, Side
from hashtune.evaluation.gate import decide
from hashtune.spec.schema import EvalGate


def gate(**changes):
    settings = {
        "task_min": 0.5,
        "task_metric_min_gain": 0.1,
        "regression_max_drop": 0.1,
        "slice_max_drop": 0.25,
        "unfinished_max_share": 0.05,
        "confidence": 0.95,
        "min_task_items": 20,
        "min_regression_items": 20,
    }
    return EvalGate(**(settings | changes))


def task(scores, majority=None, answer="a"):
    majority = majority or [0.0] * len(scores)
    return [
        {
            "id": f"t{i}",
            "prompt": "p",
            "answer": f"{answer}{i}",
            "finished": True,
            "scores": {"x": score},
            "majority": {"x": rival},
        }
        for i, (score, rival) in enumerate(zip(scores, majority, strict=True))
    ]


def suites(scores, output="o", slices=None):
    slices = slices or ["s"] * len(scores)
    return [
        {"id": f"s{i}", "slice": name, "output": f"{output}{i}", "score": score}
        for i, (score, name) in enumerate(zip(scores, slices, strict=True))
    ]


def evidence(base_task, new_task, base_suites, new_suites, **changes):
    same = {"test_sha256": "1", "batch_size": 16}
    base = Side(base_task, base_suites, same, same)
    new = Side(new_task, new_suites, same | changes, same)
    return Evidence(base=base, adapter=new)


def judge(base, new, base_suites=None, new_suites=None, majority=None, **changes):
    old = suites(base_suites if base_suites is not None else [1.0] * 30)
    now = suites(new_suites if new_suites is not None else [1.0] * 30, output="n")
    pair = evidence(task(base, majority), task(new, majority, answer="b"), old, now)
    verdict = decide(pair, gate(**changes))
    return verdict, {rule.name: rule for rule in verdict.rules}


def test_a_clear_gain_without_loss_passes():
    verdict, rules = judge([0.0] * 40, [1.0] * 38 + [0.0] * 2)
    assert (verdict.verdict, verdict.summary) == ("pass", "passes all 8 rules")
    assert list(rules) == [
        "task.items",
        "task.unfinished",
        "task.x.score",
        "task.x.gain_over_base",
        "task.x.gain_over_majority",
        "regression.items",
        "regression.drop",
        "regression.slice.s",
    ]
    gain = rules["task.x.gain_over_base"]
    assert (gain.value, gain.threshold, gain.items, gain.verdict) == (0.95, 0.1, 40, "pass")
    assert gain.bound == pytest.approx(0.9, abs=0.03)


def test_the_estimate_below_the_margin_fails():
    verdict, rules = judge([0.5] * 40, [0.59] * 40)
    assert rules["task.x.gain_over_base"].verdict == "fail"
    assert rules["task.x.score"].verdict == "pass"
    assert verdict.verdict == "fail"
    assert verdict.summary == "fails 1 of 8: task.x.gain_over_base"


@pytest.mark.parametrize(
    ("cut", "items", "word"),
    [(2, 40, "pass"), (3, 40, "fail"), (40, 40, "fail"), (19, 19, "not enough evidence")],
)
def test_c26_answers_that_reach_the_length_limit(cut, items, word):
    """2 of 40 are the 5 % that are allowed, 3 are not, whatever the scores say."""
    new = task([1.0] * items, answer="b")
    for row in new[:cut]:
        row["finished"] = False
    ones = suites([1.0] * 30)
    pair = evidence(task([0.0] * items), new, ones, suites([1.0] * 30, output="n"))
    rules = {rule.name: rule for rule in decide(pair, gate()).rules}
    rule = rules["task.unfinished"]
    assert (rule.value, rule.threshold, rule.items) == (cut / items, 0.05, items)
    assert rule.verdict == word


def test_the_margin_itself_is_enough_in_spite_of_float_rounding():
    _, rules = judge([0.2] * 40, [0.3] * 40, task_min=0.3)  # 0.3 - 0.2 < 0.1 in floats
    assert rules["task.x.gain_over_base"].verdict == "pass"
    assert rules["task.x.score"].verdict == "pass"


def test_a_gain_that_chance_could_explain_is_not_enough_evidence():
    verdict, rules = judge([0.0] * 40, [1.0] * 22 + [0.0] * 18)  # 0.55 >= 0.5, lower bound 0.42
    assert rules["task.x.score"].verdict == "not enough evidence"
    assert verdict.verdict == "not enough evidence"
    assert verdict.summary == "not enough evidence for task.x.score"


def test_an_adapter_must_beat_the_most_frequent_answer():
    verdict, rules = judge([0.0] * 40, [1.0] * 30 + [0.0] * 10, majority=[1.0] * 28 + [0.0] * 12)
    assert rules["task.x.gain_over_base"].verdict == "pass"
    assert rules["task.x.gain_over_majority"].verdict == "fail"
    assert verdict.verdict == "fail"


def test_too_few_items_are_never_a_pass():
    verdict, rules = judge([0.0] * 19, [1.0] * 19, [1.0] * 19, [0.0] * 19, slice_max_drop=1.0)
    assert rules["task.items"].verdict == rules["regression.items"].verdict == "not enough evidence"
    assert rules["regression.drop"].verdict == "not enough evidence"
    assert verdict.verdict == "not enough evidence"


def test_a_drop_over_all_items_fails_on_its_estimate():
    verdict, rules = judge([0.0] * 40, [1.0] * 40, [1.0] * 30, [1.0] * 26 + [0.0] * 4)
    drop = rules["regression.drop"]
    assert (drop.verdict, drop.items, verdict.verdict) == ("fail", 30, "fail")
    assert drop.value == pytest.approx(4 / 30)
    assert drop.bound > drop.value
    _, rules = judge([0.0] * 40, [1.0] * 40, [1.0] * 30, [1.0] * 27 + [0.0] * 3)
    assert rules["regression.drop"].verdict == "pass"  # exactly 0.1


def test_no_suite_is_not_enough_evidence():
    verdict, rules = judge([0.0] * 40, [1.0] * 40, [], [])
    drop = rules["regression.drop"]
    assert (drop.value, drop.items, drop.verdict) == (None, 0, "not enough evidence")
    assert verdict.verdict == "not enough evidence"


def slice_rule(lost, won, size, others=90):
    """The veto of a slice of `size` items among `others` that stay right."""
    old = [1.0] * lost + [0.0] * won + [1.0] * (size - lost - won)
    new = [0.0] * lost + [1.0] * won + [1.0] * (size - lost - won)
    names = ["small"] * size + ["big"] * others
    pair = evidence(
        task([0.0] * 40),
        task([1.0] * 40, answer="b"),
        suites(old + [1.0] * others, slices=names),
        suites(new + [1.0] * others, output="n", slices=names),
    )
    verdict = decide(pair, gate())
    rules = {rule.name: rule for rule in verdict.rules}
    assert rules["regression.slice.big"].verdict == "pass"
    return verdict.verdict, rules["regression.slice.small"]


def test_a_slice_has_a_veto_when_its_loss_is_large_and_no_accident():
    overall, rule = slice_rule(lost=5, won=0, size=12)
    assert (overall, rule.verdict, rule.bound, rule.items) == ("fail", "fail", 1 / 32, 12)
    assert rule.value == pytest.approx(5 / 12)


def test_a_large_loss_within_chance_and_a_sure_small_loss_have_none():
    overall, rule = slice_rule(lost=4, won=0, size=12)  # p = 1/16
    assert (overall, rule.verdict) == ("pass", "pass")
    assert "within chance" in rule.meaning
    overall, rule = slice_rule(lost=6, won=0, size=40)  # 0.15 <= 0.25, p = 1/64
    assert (overall, rule.verdict) == ("pass", "pass")
    assert "too small" in slice_rule(lost=4, won=0, size=4)[1].meaning


def test_the_verdict_is_the_same_every_time():
    scores = [1.0] * 25 + [0.0] * 15
    assert judge([0.0] * 40, scores)[0] == judge([0.0] * 40, scores)[0]


def refused(pair):
    with pytest.raises(InputError) as caught:
        decide(pair, gate())
    return [(f.rule, f.field) for f in caught.value.findings]


def test_other_items_are_refused():
    base, new = task([0.0] * 3), task([1.0] * 3, answer="b")
    new[1]["id"] = "t2"
    new[2]["id"] = "t1"
    pair = evidence(base, new, suites([1.0]), suites([1.0, 1.0]))
    assert refused(pair) == [
        ("other-items", "task[1]"),
        ("other-items", "task[2]"),
        ("other-items", "suites"),
    ]


def test_other_conditions_are_refused():
    pair = evidence(task([0.0]), task([1.0], answer="b"), [], [], test_sha256="2", batch_size=8)
    assert refused(pair) == [
        ("other-conditions", "task.batch_size"),
        ("other-conditions", "task.test_sha256"),
    ]


def test_an_adapter_without_effect_is_refused():
    pair = evidence(task([0.0] * 3), task([0.0] * 3), suites([1.0] * 3), suites([1.0] * 3))
    assert refused(pair) == [("no-effect", None)]
    one_other = evidence(task([0.0] * 3), task([0.0] * 3), suites([1.0] * 3), suites([1.0] * 3))
    one_other.adapter.suites[2]["output"] = "other"
    assert decide(one_other, gate()).verdict == "fail"


def test_other_prompts_do_not_hide_an_adapter_without_effect():
    new = task([0.0] * 3, answer="b")
    for row in new:  # the base had an instruction: other prompts, other answers, the same model
        row["prompt"] = "other"
    pair = evidence(task([0.0] * 3), new, suites([1.0] * 3), suites([1.0] * 3))
    assert refused(pair) == [("no-effect", None)]


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), True, None, "1"])
def test_scores_outside_zero_to_one_are_refused(score):
    pair = evidence(task([0.0]), task([score], answer="b"), suites([1.0]), suites([score]))
    assert refused(pair) == [
        ("score", "task of adapter: t0.x"),
        ("score", "suites of adapter: s0.score"),
    ]


def test_no_items_and_other_fields_are_refused():
    assert refused(evidence([], [], suites([1.0]), suites([1.0], output="n"))) == [
        ("empty", "task")
    ]
    new = task([1.0], answer="b")
    new[0]["scores"] = {"y": 1.0}
    assert refused(evidence(task([0.0]), new, [], [])) == [("other-fields", "adapter: t0.scores")]


def test_the_gate_needs_no_torch():
    code = (
        "import sys, hashtune.stages.gate; print('torch' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "src"},
    )
    assert done.stdout.split() == ["False", "False"]
