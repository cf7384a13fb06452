"""Hints: what is usual, from where, and that they refuse nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from hashtune.spec.load import read_params, validate
from hashtune.spec.ranges import RANGES, hints
from hashtune.spec.schema import Spec

ROOT = Path(__file__).parents[2]


def spec(changes: dict[str, object]) -> Spec:
    params = read_params(ROOT / "params.yaml")
    params["optim"]["lr"] = 1e-4
    for dotted, value in changes.items():
        section, key = dotted.split(".")
        params[section][key] = value
    return validate(params)


def test_a_usual_spec_has_no_hint() -> None:
    assert list(hints(spec({}))) == []


def test_the_words() -> None:
    assert list(hints(spec({"optim.lr": 1e-3}))) == [
        "optim.lr 0.001 is above 2e-05 to 0.0005, usual for lora with adamw "
        "(TM, lab L3.3, best near 1e-4 to 2e-4)"
    ]
    assert list(hints(spec({"duration.epochs": 4}))) == [
        "duration.epochs 4 is above 1 to 3, usual for fine-tuning "
        "(TM on regularisation, and Unsloth's LoRA guide)"
    ]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"optim.lr": 1.9e-5}, ["optim.lr"]),
        ({"optim.lr": 2e-5}, []),
        ({"optim.lr": 5e-4}, []),
        ({"optim.lr": 1.8e-4, "optim.name": "lion"}, ["optim.lr"]),
        ({"optim.lr": 1e-5, "optim.name": "lion"}, []),
        ({"optim.lr": 0.5, "optim.name": "sgd"}, []),  # no range is known
        ({"optim.lr": 1e-3, "optim.name": "paged_adamw_8bit"}, ["optim.lr"]),
        ({"optim.weight_decay": 0.2}, ["optim.weight_decay"]),
        ({"optim.neftune_alpha": 50.0}, ["optim.neftune_alpha"]),
        ({"optim.neftune_alpha": 5.0}, []),
        ({"schedule.warmup_fraction": 0.5}, ["schedule.warmup_fraction"]),
        ({"schedule.warmup_fraction": None, "schedule.warmup_steps": 5}, []),
        ({"schedule.decay_fraction": 0.9}, ["schedule.decay_fraction"]),
        (
            {"optim.lr": 1.0, "duration.epochs": 9, "optim.weight_decay": 1.0},
            ["optim.lr", "optim.weight_decay", "duration.epochs"],
        ),
    ],
)
def test_what_is_unusual(changes: dict[str, object], fields: list[str]) -> None:
    assert [hint.split(" ")[0] for hint in hints(spec(changes))] == fields


def test_full_fine_tuning_wants_about_a_tenth() -> None:
    full = [usual for usual in RANGES if usual.holds_for("full", "adamw")]
    lora = [usual for usual in RANGES if usual.holds_for("qlora", "adamw")]
    assert (full[0].low, full[0].high) == (5e-6, 2e-5)
    assert 4 <= lora[0].low / full[0].low <= 10 <= lora[0].high / full[0].high <= 25


def test_full_fine_tuning_at_a_rate_of_lora_gets_a_hint() -> None:
    none = dict.fromkeys([f"method.{n}" for n in ("variant", "r", "alpha", "dropout", "targets")])
    full = {"method.type": "full", **none}
    assert list(hints(spec({**full, "optim.lr": 1e-5}))) == []
    assert list(hints(spec({**full, "optim.lr": 1e-4}))) == [
        "optim.lr 0.0001 is above 5e-06 to 2e-05, usual for full with adamw "
        "(TM, lab L3.3; a tenth of LoRA's)"
    ]


def test_every_range_has_a_source_and_two_ends() -> None:
    assert all(usual.source and usual.low < usual.high for usual in RANGES)


def test_planted_fault_a_reversed_range_would_hint_at_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reversed_ends = replace(RANGES[0], low=RANGES[0].high, high=RANGES[0].low)
    monkeypatch.setattr("hashtune.spec.ranges.RANGES", (reversed_ends,))
    assert len(list(hints(spec({})))) == 1
