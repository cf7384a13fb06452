"""Choices: what there is, and what is said about what there is not."""

import pytest

from hashtune.errors import InputError
from hashtune.inspection.choose import at_random, by_id, by_number, by_reason, longest


def test_unknown_ids_are_all_named_with_the_nearest() -> None:
    known = ["aabb", "ccdd", "eeff"]
    assert by_id(["eeff", "aabb"], known, file="f") == [2, 0]
    with pytest.raises(InputError) as caught:
        by_id(["ccdx", "aabb", "xxff"], known, file="f")
    assert [str(finding) for finding in caught.value.findings] == [
        "f: has no example 'ccdx'; the nearest of its 3 is 'ccdd' [no-example]\n"
        "    fix: name an example that is there; `hashtune inspect` shows some with their ids",
        "f: has no example 'xxff'; the nearest of its 3 is 'eeff' [no-example]\n"
        "    fix: name an example that is there; `hashtune inspect` shows some with their ids",
    ]
    with pytest.raises(InputError, match="it is empty"):
        by_id(["a"], [], file="f")


def test_numbers_outside_say_which_there_are() -> None:
    assert by_number([1, 3], first=1, count=3, noun="step", file="f") == [0, 2]
    with pytest.raises(InputError) as caught:
        by_number([0, 4, 2], first=1, count=3, noun="step", file="f")
    assert len(caught.value.findings) == 2
    assert "has no step 0; there are 1 to 3" in str(caught.value)
    assert "fix: give a step from 1 to 3\n" in str(caught.value)
    with pytest.raises(InputError, match="there are none") as caught:
        by_number([0], first=0, count=0, noun="row", file="f")
    assert (
        "fix: reports/prepare.json and reports/tokenize.json say what was dropped\n"
        in f"{caught.value}\n"
    )


def test_longest_and_random() -> None:
    assert longest([3, 9, 5, 9], 3) == [1, 3, 2]
    assert at_random(100, 3, seed=1) == at_random(100, 3, seed=1) != at_random(100, 3, seed=2)
    assert sorted(at_random(2, 5, seed=0)) == [0, 1]


def test_unknown_reason_names_those_that_occur() -> None:
    ledger = [{"reason": "blank", "id": 1}, {"reason": "over_length"}, {"reason": "blank"}]
    assert [line.get("id") for line in by_reason("blank", ledger)] == [1, None]
    with pytest.raises(InputError) as caught:
        by_reason("over-length", ledger)
    assert "reasons: blank (2), over_length (1)" in str(caught.value)
    assert "did you mean 'over_length'?" in str(caught.value)
    with pytest.raises(InputError, match="nothing was dropped at all") as caught:
        by_reason("blank", [])
    assert "fix: leave --dropped away\n" in f"{caught.value}\n"
