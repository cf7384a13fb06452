"""A margin that the suites cannot resolve is refused; the figures of the issue that asks for it."""

import pytest

from hashtune.spec.composition import compose, parse
from hashtune.spec.load import validate
from hashtune.spec.pins import check_pins
from hashtune.spec.resolution import items_to_resolve, resolution, resolution_findings, suite_items

PLANNED = {"discordant_share": 0.1, "confidence": 0.95}


@pytest.mark.parametrize(("items", "bound"), [(60, 0.067), (300, 0.030), (3000, 0.009)])
def test_upper_bound_of_an_unchanged_adapter(items, bound):
    """1.644854 * sqrt(0.1 / n): 0.06715, 0.03003, 0.009497."""
    assert round(resolution(items, **PLANNED), 3) == bound


def test_items_to_resolve_by_hand():
    """0.1 * (1.644854 / 0.05)^2 = 108.2; what one number of items resolves asks for no more."""
    assert items_to_resolve(0.05, **PLANNED) == 109
    assert items_to_resolve(resolution(84, **PLANNED), **PLANNED) == 84


@pytest.fixture
def spec(project):
    """The committed spec with one suite of so many items, and the gate's changes."""

    def make(items, max_items=None, **gate):
        params = parse(compose(project))
        (project / "data/own.jsonl").write_text("{}\n" * items + "\n")
        suite = {"name": "own", "uri": "data/own.jsonl", "sha256": "0" * 64}
        params["regression"] |= {"suites": [suite] if items else [], "max_items": max_items}
        params["eval_gate"] |= PLANNED | gate
        return validate(params)

    return make


def told(spec, project):
    return [(f.rule, f.field, f.fix) for f in resolution_findings(spec, project)]


def test_a_margin_that_no_adapter_could_keep_is_refused(spec, project):
    wide, narrow = spec(60, regression_max_drop=0.0672), spec(60, regression_max_drop=0.05)
    assert told(wide, project) == []
    ((rule, field, fix),) = told(narrow, project)
    assert (rule, field) == ("margin-unresolved", "eval_gate.regression_max_drop")
    assert fix.startswith("set it to at least 0.068, or give the suites 109 items")
    (finding,) = resolution_findings(narrow, project)
    assert finding in check_pins(narrow, project)  # what spec and hashtune check refuse by
    assert "60 suite items cannot resolve a drop of 0.05" in finding.message
    assert "the upper bound is 0.06715" in finding.message


def test_the_cap_counts_and_a_margin_of_nothing_has_no_number(spec, project):
    capped = spec(300, max_items=60, regression_max_drop=0.05)
    assert suite_items(capped, project) == 60
    assert len(told(capped, project)) == 1
    assert told(spec(300, regression_max_drop=0.05), project) == []
    ((_, _, fix),) = told(spec(300, regression_max_drop=0.0), project)
    assert fix == "set it to at least 0.031"


def test_an_adapter_that_changes_more_needs_more_items(spec, project):
    assert told(spec(300, regression_max_drop=0.05, discordant_share=0.3), project)
    assert told(spec(300, regression_max_drop=0.05, confidence=0.999), project)


def test_no_suite_and_no_file_are_others_findings(spec, project):
    assert told(spec(0, regression_max_drop=0.0), project) == []
    missing = spec(60, regression_max_drop=0.0)
    (project / "data/own.jsonl").unlink()
    assert told(missing, project) == []


@pytest.mark.parametrize("overrides", [[], ["experiment=smoke"], ["experiment=toy"]])
def test_what_is_shipped_can_resolve_its_margin(project, overrides):
    spec = validate(parse(compose(project, overrides)))
    assert suite_items(spec, project) == spec.regression.max_items or not overrides
    assert list(resolution_findings(spec, project)) == []
