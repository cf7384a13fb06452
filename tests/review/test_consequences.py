"""Every setting has a consequence, and the table says what dvc.yaml says."""

from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from hashtune.review.consequences import CONSEQUENCES, Group, consequence
from hashtune.spec.schema import Spec

# stages by what a changed param of theirs changes
STAGES = {
    Group.TOKENS: ("replay", "prepare", "tokenize"),
    Group.WEIGHTS: ("train",),
    Group.VERDICT: ("baseline", "evaluate", "regress", "gate"),
}
# params of those stages that do not change what the stage is for, each with the reason
EXCEPT = {
    (Group.TOKENS, "data.eval"): "prepare and tokenize write the eval split apart",
    (Group.TOKENS, "data.test"): "prepare writes the test split apart",
    (Group.TOKENS, "determinism.threads"): "last digits of replay's logits",
    (Group.WEIGHTS, "activations"): "the same values computed again",
    (Group.WEIGHTS, "checkpoint.samples"): "answers beside training",
    (Group.WEIGHTS, "checkpoint.keep_stable"): "a state for other runs",
}


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all leaves of the schema."""
    found = []
    for name, field in model.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if is_model(kind)]
        found += keys(inner[0], f"{dotted}.") if inner else [dotted]
    return found


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def without_entry(names: list[str]) -> list[str]:
    missing = []
    for name in names:
        try:
            consequence(name)
        except KeyError:
            missing.append(name)
    return missing


def test_every_setting_has_an_entry():
    names = keys(Spec)
    assert {"optim.lr", "data.eval.schema", "seed", "schedule.branch_from.path"} <= set(names)
    assert without_entry(names) == []


def test_a_setting_without_an_entry_is_seen():
    """Planted: a new section and a new single setting."""
    assert without_entry(["serving.port", "checkpoint.compress", "optim.new"]) == [
        "serving.port",
        "checkpoint.compress",
    ]


def test_no_entry_is_of_a_setting_that_is_gone():
    names = keys(Spec)
    assert [
        key
        for key in CONSEQUENCES
        if not any(name == key or name.startswith(f"{key}.") for name in names)
    ] == []


@pytest.mark.parametrize("group", STAGES)
def test_the_groups_follow_from_the_params_of_the_stages(root, group):
    """dvc.yaml is the second derivation: what a stage depends on changes what the stage makes."""
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    params = {key for name in STAGES[group] for key in stages[name]["params"]}
    assert len(params) >= 20
    excepted = {key for other, key in EXCEPT if other is group}
    wrong = [
        key
        for key in sorted(params)
        if group not in consequence(key).groups
        and not any(key == name or key.startswith(f"{name}.") for name in excepted)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("key", "groups"),
    [
        ("hardware.price_per_hour", [Group.COST]),
        ("data.sources.triage.sha256", [Group.TOKENS]),
        ("data.test.sha256", [Group.VERDICT]),
        ("eval_gate.task_min", [Group.VERDICT]),
        ("regression.suites.knowledge.sha256", [Group.VERDICT, Group.TOKENS]),  # verdict first
        ("optim.lr", [Group.WEIGHTS]),
        ("tokenizer.chat_template", [Group.TOKENS, Group.VERDICT]),
        ("activations.checkpointing", [Group.COST]),
    ],
)
def test_what_follows(key, groups):
    assert list(consequence(key).groups) == groups
