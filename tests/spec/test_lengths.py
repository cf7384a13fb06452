"""What fits into no run is refused before anything runs; what may fit is left to train."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hashtune.spec.lengths import hopeless, keep_findings, length_findings
from hashtune.spec.load import read_params, validate
from hashtune.spec.schema import Checkpoint, Schedule
from hashtune.spec.training import training_findings

ROOT = Path(__file__).parents[2]
PARAMS = read_params(ROOT / "params.yaml")
FIXED = {"warmup_fraction": None, "warmup_steps": 10}


def schedule(name: str, **changes: Any) -> Schedule:
    fields = {"warmup_fraction": 0.05, "warmup_steps": None, "decay": None, "decay_fraction": None}
    if name == "wsd":
        fields |= {"decay": "linear", "decay_fraction": None if "decay_start" in changes else 0.2}
    return Schedule(**{**PARAMS["schedule"], "name": name, **fields, **changes})


def kept(step: int | None) -> Checkpoint:
    return Checkpoint(**{**PARAMS["checkpoint"], "keep_stable": step})


@pytest.mark.parametrize(
    ("settings", "keep", "most", "fields"),
    [
        (schedule("cosine", **FIXED), None, 10, []),
        (schedule("cosine", **FIXED), None, 9, ["schedule.warmup_steps"]),
        (schedule("cosine", **FIXED), None, None, []),
        (schedule("cosine", warmup_fraction=1.0), None, 9, []),
        (schedule("wsd", decay_start=99), None, 100, ["schedule.decay"]),  # 99 is the last update
        (schedule("wsd", decay_start=98), None, 100, []),
        (schedule("wsd", decay_start=200), None, 100, ["schedule.decay"]),
        (schedule("wsd", decay_start=200), None, None, []),
        (schedule("wsd", decay_start=8, **FIXED), None, None, ["schedule.decay"]),
        (schedule("wsd", decay_start=9, **FIXED), None, None, []),
        (schedule("wsd"), None, 1, ["schedule.decay"]),
        (schedule("wsd", decay_fraction=0.0), None, 100, ["schedule.decay"]),
        # half of 100 steps warm up, half of 30 would not: the epochs may hold 30
        (schedule("wsd", warmup_fraction=0.5, decay_start=20), None, 100, []),
        (schedule("wsd", decay_start=20, **FIXED), 9, 100, ["checkpoint.keep_stable"]),
        (schedule("wsd", decay_start=20, **FIXED), 10, 100, []),
        (schedule("wsd", decay_start=20, **FIXED), 21, 100, []),
        (schedule("wsd", decay_start=20, **FIXED), 22, 100, ["checkpoint.keep_stable"]),
        (schedule("wsd", decay_start=20, **FIXED), 22, None, ["checkpoint.keep_stable"]),
        (schedule("constant", **FIXED), 100, 100, []),
        (schedule("constant", **FIXED), 101, 100, ["checkpoint.keep_stable"]),
        (schedule("constant", **FIXED), 101, None, []),
        (schedule("constant", **FIXED), 9, None, ["checkpoint.keep_stable"]),
        (schedule("constant", warmup_fraction=0.5), 40, 100, []),  # of 80 steps it is stable
    ],
)
def test_by_hand(settings: Schedule, keep: int | None, most: int | None, fields: list[str]) -> None:
    assert [f.field for f in hopeless(settings, kept(keep), most=most)] == fields


@given(
    name=st.sampled_from(["cosine", "constant", "wsd"]),
    warmup=st.one_of(st.integers(0, 12), st.sampled_from([0.0, 0.1, 0.5, 1.0])),
    decay=st.one_of(st.integers(0, 12), st.sampled_from([0.0, 0.1, 0.5, 1.0])),
    keep=st.one_of(st.none(), st.integers(1, 14)),
    most=st.integers(1, 14),
)
def test_property_what_is_refused_is_refused_by_train_at_each_length(
    name: str, warmup: float, decay: float, keep: int | None, most: int
) -> None:
    """And of a warm-up in steps all that train refuses at the longest is refused before."""
    assume(name != "cosine" or keep is None)
    begins = {"warmup_fraction": None, "warmup_steps": warmup}
    if isinstance(warmup, float):
        begins = {"warmup_fraction": warmup, "warmup_steps": None}
    of = "decay_start" if isinstance(decay, int) else "decay_fraction"
    ends = {"decay_fraction": None, "decay_start": None, of: decay} if name == "wsd" else {}
    settings, checkpoint = schedule(name, **begins, **ends), kept(keep)

    def by_train(total: int) -> set[str | None]:
        found = length_findings(settings, total=total)
        found += keep_findings(settings, checkpoint, total=total)
        return {finding.field for finding in found}

    refused = {finding.field for finding in hopeless(settings, checkpoint, most=most)}
    assert not refused or all(by_train(total) for total in range(1, most + 1))
    if isinstance(warmup, int):
        assert refused == by_train(most)


def test_the_words_of_a_run_without_a_bound() -> None:
    (finding,) = hopeless(schedule("constant", **FIXED), kept(9), most=None)
    assert finding.message == (
        "step 9 does not lie in the stable phase, which is that of step 10 on"
    )
    (finding,) = hopeless(schedule("wsd", decay_start=20, **FIXED), kept(22), most=None)
    assert finding.message.endswith("which is that of steps 10 to 21")


def test_the_spec_is_refused_with_them() -> None:
    params = {**PARAMS, "duration": {"epochs": 1, "max_steps": 175}}
    params["schedule"] = schedule("wsd", decay_start=400, **FIXED).model_dump()
    params["checkpoint"] = {**PARAMS["checkpoint"], "keep_stable": 5}
    found = training_findings(validate(params))
    assert [(f.rule, f.field) for f in found] == [
        ("schedule-length", "schedule.decay"),
        ("keep-stable", "checkpoint.keep_stable"),
    ]
    params["schedule"]["decay_fraction"] = 0.2  # a contradiction: there is no one length
    assert [f.rule for f in training_findings(validate(params))] == ["contradiction"]
