"""Hints: what is usual, from where, and that they refuse nothing."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from hashtune.spec.load import read_params, validate
from hashtune.spec.methods import FIELDS
from hashtune.spec.ranges import ADAMW_SIZED, LIMITS, LION, RANGES, WEIGHTS, Range, hints
from hashtune.spec.schema import OptimizerName, Spec

ROOT = Path(__file__).parents[2]


COURSE = 'the course "Training Mechanics: Optimizers, Schedules, and Memory Math" (2026)'


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
        f"(the rates at which {COURSE} compares eval losses of LoRA, lowest near 1e-4 to 2e-4)"
    ]
    assert list(hints(spec({"duration.epochs": 4}))) == [
        "duration.epochs 4 is above 1 to 3, usual for fine-tuning "
        f"({COURSE} and Unsloth's guide to LoRA)"
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
        ({"optim.lr": 0.5, "optim.name": "adafactor"}, []),
        ({"optim.weight_decay": 0.2}, ["optim.weight_decay"]),
        ({"optim.weight_decay": 0.2, "optim.name": "sgd"}, ["optim.weight_decay"]),
        ({"optim.weight_decay": 0.2, "optim.name": "lion"}, []),
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


SOURCES = {  # read off the sources once more; None: silent by design
    "optim.lr": {
        ("lora", "adamw"): (2e-5, 5e-4),
        ("full", "adamw"): (5e-6, 2e-5),
        ("lora", "lion"): (2e-5 / 10, 5e-4 / 3),
        ("full", "lion"): (5e-6 / 10, 2e-5 / 3),
        ("prompt", "adamw"): None,
        ("prefix", "lion"): None,
        ("lora", "adafactor"): None,
        ("full", "sgd"): None,
    },
    "optim.weight_decay": {
        ("lora", "adamw"): (0.0, 0.1),
        ("full", "adafactor"): (0.0, 0.1),
        ("prefix", "sgd"): (0.0, 0.1),
        ("qlora", "lion"): (0.0, 0.1 * 10),
    },
    "duration.epochs": {
        ("lora", "sgd"): (1, 3),
        ("full", "lion"): (1, 3),
        ("prompt", "adamw"): None,
        ("prefix", "adamw"): None,
    },
    "optim.neftune_alpha": {("prompt", "sgd"): (5.0, 15.0)},
    "schedule.warmup_fraction": {("prefix", "lion"): (0.03, 0.1)},
    "schedule.decay_fraction": {("full", "muon"): (0.1, 0.2)},
}
LIKE = {
    "lora": ("lora", "qlora"),
    "adamw": tuple(sorted(ADAMW_SIZED)),
}


@pytest.mark.parametrize(
    ("field", "method", "optimizer", "ends"),
    [
        (field, method, optimizer, ends)
        for field, of in SOURCES.items()
        for (one, other), ends in of.items()
        for method in LIKE.get(one, (one,))
        for optimizer in LIKE.get(other, (other,))
    ],
)
def test_the_ends_are_those_of_the_sources(
    field: str, method: str, optimizer: str, ends: tuple[float, float] | None
) -> None:
    """Two digits, as the sources give them."""
    found = [
        (usual.low, usual.high)
        for usual in RANGES
        if usual.field == field and usual.holds_for(method, optimizer)
    ]
    assert found == ([] if ends is None else [tuple(float(f"{end:.1e}") for end in ends)])


@pytest.mark.parametrize("usual", RANGES, ids=lambda usual: f"{usual.field}-{usual.high}")
def test_both_sides_of_both_ends(usual: Range) -> None:
    """A step of a thousandth, or an epoch. Below zero and below one epoch the schema refuses."""
    whole = isinstance(usual.low, int)
    for value, inside in (
        (usual.low, True),
        (usual.low - 1 if whole else usual.low * 0.999, usual.low == 0.0),
        (usual.high, True),
        (usual.high + 1 if whole else usual.high * 1.001, False),
    ):
        assert (usual.field in fields_hinted_at(usual, value)) is not inside


def fields_hinted_at(usual: Range, value: float) -> list[str]:
    """Of a spec with the value, and a method and optimizer that the range holds for."""
    section, key = usual.field.split(".")
    now = spec({})
    method = sorted(usual.methods or {"lora"})[0]
    optimizer = sorted(usual.optimizers or {"adamw"})[0]
    edits = {
        "method": {"type": method},
        "optim": {"name": optimizer},
    }
    edits[section] = edits.get(section, {}) | {key: value}
    sections = {
        name: getattr(now, name).model_copy(update=changes) for name, changes in edits.items()
    }
    return [hint.split(" ")[0] for hint in hints(now.model_copy(update=sections))]


def test_a_hint_of_virtual_tokens_names_what_is_left() -> None:
    """The rate of a prompt and its epochs have no range, decay and warm-up have."""
    now = spec({"optim.lr": 0.3, "duration.epochs": 10, "optim.weight_decay": 0.2})
    soft = now.model_copy(update={"method": now.method.model_copy(update={"type": "prompt"})})
    assert list(hints(soft)) == [
        "optim.weight_decay 0.2 is above 0 to 0.1, usual for prompt with adamw "
        f"({COURSE} and Unsloth's guide to LoRA)"
    ]


METHODS = list(FIELDS)
OPTIMIZERS = get_args(OptimizerName)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_method_and_optimizer_takes_any_rate_in_silence(method: str, optimizer: str) -> None:
    """Also each that comes later: a rate of 50 and one of 1e-9 are outside of all that is known."""
    found = [of for of in (*RANGES, *LIMITS) if of.field == "optim.lr"]
    (usual,) = (of for of in found if of.holds_for(method, optimizer))
    assert 1e-9 < usual.low < usual.high < 50
    assert (usual in RANGES) is (method in WEIGHTS and optimizer in ADAMW_SIZED | LION)


@pytest.mark.parametrize(
    ("method", "optimizer", "lr", "said"),
    [
        (
            "lora",
            "sgd",
            50.0,
            "optim.lr 50 is above 1e-07 to 1, the widest known for lora with sgd",
        ),
        (
            "full",
            "sgd",
            50.0,
            "optim.lr 50 is above 1e-07 to 1, the widest known for full with sgd",
        ),
        ("lora", "sgd", 1.0, ""),
        ("prompt", "adamw", 1.0, "optim.lr 1 is above 5e-05 to 0.3, the widest known for prompt"),
        ("prefix", "adamw", 1.0, "optim.lr 1 is above 5e-05 to 0.3, the widest known for prefix"),
        ("prompt", "adafactor", 0.3, ""),
        ("prompt", "adafactor", 0.31, "optim.lr 0.31 is above 5e-05 to 0.3, the widest known"),
        ("prefix", "lion", 0.2, "optim.lr 0.2 is above 5e-06 to 0.1, the widest known for prefix"),
        ("prefix", "adamw", 5e-5, ""),
        ("prefix", "adamw", 1e-5, "optim.lr 1e-05 is below 5e-05 to 0.3, the widest known"),
        ("prompt", "sgd", 50.0, "optim.lr 50 is above 1e-07 to 1, the widest known for prompt"),
        ("lora", "adafactor", 2.0, "optim.lr 2 is above 1e-07 to 1, the widest known for lora"),
    ],
)
def test_limits_where_no_rate_is_usual(method: str, optimizer: str, lr: float, said: str) -> None:
    now = spec({"optim.lr": lr, "optim.name": optimizer})
    now = now.model_copy(update={"method": now.method.model_copy(update={"type": method})})
    found = [hint for hint in hints(now) if hint.startswith("optim.lr")]
    assert [hint[: len(said)] for hint in found] == ([said] if said else [])


def test_sources_are_in_plain_words() -> None:
    """A name that a reader can look up, and no abbreviation or lesson number of its own."""
    for usual in (*RANGES, *LIMITS):
        assert not re.search(r"\b(TM|lab|module|L\d)\b", usual.source), usual
        assert re.search(r"\d{4}|our own limits", usual.source), usual


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
        f"(the rates at which {COURSE} compares eval losses of full fine-tuning, about a tenth of "
        "LoRA's)"
    ]


def test_every_range_has_a_source_and_two_ends() -> None:
    assert all(usual.source and usual.low < usual.high for usual in RANGES)


def test_planted_fault_a_reversed_range_would_hint_at_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reversed_ends = replace(RANGES[0], low=RANGES[0].high, high=RANGES[0].low)
    monkeypatch.setattr("hashtune.spec.ranges.RANGES", (reversed_ends,))
    assert len(list(hints(spec({})))) == 1
