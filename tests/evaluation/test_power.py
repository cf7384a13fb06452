"""Items that decide and drops that show, against figures computed by hand."""

import math

import pytest

from hashtune.evaluation.power import detectable_drop, items_needed


def test_items_needed_by_hand():
    """30 of 300 changed, as many lost as won, and one more: s^2 = 31/301 = 0.10299;
    (1.64485 + 0.84162)^2 = 6.18256; times 0.10299 / 0.03^2 = 707.48."""
    drops = [1.0] * 15 + [-1.0] * 15 + [0.0] * 270
    assert items_needed(drops, distance=0.03, confidence=0.95) == 708
    assert items_needed(drops, distance=-0.03, confidence=0.95) == 708


def test_items_without_a_change_do_not_promise_certainty():
    """s^2 = 1/21 though nothing changed: 6.18256 / 21 / 0.05^2 = 117.8."""
    assert items_needed([0.0] * 20, distance=0.05, confidence=0.95) == 118
    assert items_needed([0.0], distance=0.5, confidence=0.95) == 13  # 6.18256 / 2 / 0.25 = 12.4


def test_small_changes_need_fewer_items():
    """Changes of 0.1: s^2 = (3 * 0.01 + 0.01) / 31 - 0.01^2 = 0.0011903;
    6.18256 * 0.0011903 / 0.01^2 = 73.6."""
    drops = [0.1, 0.1, 0.1] + [0.0] * 27
    assert items_needed(drops, distance=0.01, confidence=0.95) == 74


def test_what_these_items_leave_open_asks_for_more_than_these():
    assert items_needed([0.1, 0.0, 0.0], distance=0.5, confidence=0.95) == 4


def test_at_the_margin_no_number_decides():
    assert items_needed([1.0, 0.0], distance=0.0, confidence=0.95) is None
    assert items_needed([1.0, 0.0], distance=1e-6, confidence=0.95) is None


def test_the_detectable_drop_solves_its_equation():
    """300 items, 10 % changed: max(0.05, 0.0300) + 1/300 + 0.84162 * sqrt((0.1 - d^2) / 300)."""
    drop = detectable_drop(300, margin=0.05, discordant_share=0.1, confidence=0.95)
    again = 0.05 + 1 / 300 + 0.8416212 * math.sqrt((0.1 - drop**2) / 300)
    assert drop == pytest.approx(again, abs=1e-6)
    assert round(drop, 4) == 0.0683


def test_the_detectable_drop_shrinks_with_items_and_can_be_none():
    settings = {"margin": 0.0, "discordant_share": 0.1, "confidence": 0.95}
    drops = [detectable_drop(items, **settings) for items in (12, 43, 300, 3000)]
    assert drops == sorted(drops, reverse=True)
    assert detectable_drop(1, **settings) is None
    assert detectable_drop(300, margin=1.0, discordant_share=0.1, confidence=0.95) is None
