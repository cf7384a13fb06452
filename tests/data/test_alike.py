"""The join finds exactly the pairs that comparing all pairs finds, and compares few."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data import alike
from hashtune.data.alike import Comparison, Meetings, first_alike, meeting_points, ranked
from hashtune.data.near_duplicates import jaccard


def test_alike_sets_meet_at_a_rare_element_and_a_common_one_is_no_place_to_meet():
    frame = {f"frame{i}" for i in range(6)}
    sets = [frozenset(frame | {f"{row} {i}" for i in range(4)}) for row in range(3)]
    assert meeting_points(ranked(sets), 0.61) == [[], [], []]  # 7 shared of 10 asked, 4 may differ
    assert meeting_points(ranked(sets), 0.6) == [[0], [0], [0]]
    overlapping = [frozenset("ab"), frozenset("bc"), frozenset()]
    assert meeting_points(ranked(overlapping), 0.3) == [[0], [0], []]
    assert meeting_points(ranked([]), 0.5) == []
    assert meeting_points(ranked([frozenset("a")]), 0.5) == [[]]


def exhaustive(sets, threshold):
    """Compare every row with every earlier row that stays."""
    alike: dict[int, tuple[int, float]] = {}
    for row, of in enumerate(sets):
        earlier = [(o, jaccard(of, sets[o])) for o in range(row) if o not in alike]
        for found in [found for found in earlier if found[1] >= threshold][:1]:
            alike[row] = found
    return alike


SETS = st.lists(st.frozensets(st.sampled_from("abcdefghijklmnop"), max_size=12), max_size=25)
THRESHOLDS = st.floats(0.0, 1.0, exclude_min=True) | st.sampled_from([k / 12 for k in range(1, 13)])


@settings(deadline=None)  # a busy machine is no fault
@given(sets=SETS, threshold=THRESHOLDS)
def test_finds_exactly_what_comparing_all_pairs_finds(sets, threshold):
    found = first_alike(sets, threshold)
    assert found == exhaustive(sets, threshold)


@settings(deadline=None)  # a busy machine is no fault
@given(sets=SETS)
def test_similarities_are_those_of_the_sets(sets):
    """Numbers of shared elements say as much as the elements, empty sets included."""
    comparison = Comparison(ranked(sets))
    for row, of in enumerate(sets):
        others = [other for other in range(len(sets)) if other != row]
        found = dict(comparison.all(row, others, 0.0))
        assert found == {other: jaccard(of, sets[other]) for other in others}


def test_more_sets_than_a_block_are_compared_in_order(monkeypatch):
    monkeypatch.setattr(alike, "BLOCK", 2)
    sets = [frozenset(text) for text in ("ab", "cd", "ax", "cd", "ab", "abc")]
    comparison = Comparison(ranked(sets))
    assert list(comparison.all(5, [0, 1, 2, 3, 4], 0.6)) == [(0, 2 / 3), (4, 2 / 3)]
    assert comparison.first(5, [1, 2, 3, 4, 0], 0.6) == (4, 2 / 3)
    assert comparison.first(5, [1, 2, 3], 0.6) is None
    assert comparison.first(5, [], 0.6) is None


def test_sets_of_one_frame_do_not_meet_below_the_threshold():
    """Planted: 6 of 10 elements shared are a similarity of 6/14, but as 6 of 9 could be 0.5 of a
    smaller set, every set met every other at the frame."""
    frame = {f"frame{number}" for number in range(6)}
    sets = [frozenset(frame | {f"{row} {number}" for number in range(4)}) for row in range(5)]
    smaller = frozenset(frame)
    numbered = ranked([*sets, smaller])
    assert all(meeting_points(numbered, 0.5))
    meetings = Meetings(numbered, 0.5)
    for row in range(5):
        assert meetings.met(row) == []
        meetings.add(row)
    assert meetings.met(5) == [0, 1, 2, 3, 4]  # 6 of 10: alike
    assert first_alike([*sets, smaller], 0.6) == {5: (0, 0.6)}


def test_sets_are_read_once_however_many_meet():
    """Planted: reading them again for every comparison took 100 s for 20,000 rows of a template
    with a few slots, whose rarest elements are those of many rows."""
    chance = random.Random(0)
    reads = 0

    def sets():
        nonlocal reads
        for _ in range(500):
            reads += 1
            frame = {f"frame{number}" for number in range(30)}
            yield frozenset(frame | {f"{slot} {chance.randrange(5)}" for slot in "abcdefghi"})

    found = first_alike(sets(), 0.9)
    assert (reads, 0 < len(found) < 500) == (500, True)
