"""The blind sheet: nobody sees whose answer it is, and only the verdict may change."""

import csv
import io

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.judgement import Item, choose, read_sheet, sheet, sign_test

ITEMS = [Item(f"t{n}", f"question {n}?", f"base {n}", f"adapter {n}") for n in range(20)]


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def judged(text, verdict):
    """The sheet with the column `better` filled in by a function of the row."""
    head, *rows = rows_of(text)
    sink = io.StringIO()
    csv.writer(sink).writerows([head, *([*row[:4], verdict(row)] for row in rows)])
    return sink.getvalue()


def of_adapter(row):
    return "1" if row[2].startswith("adapter") else "2"


def test_the_order_is_mixed_and_nothing_names_the_sides():
    text, key = sheet(ITEMS, seed=0)
    first = sum(row[2].startswith("adapter") for row in rows_of(text)[1:])
    assert 0 < first < 20
    assert {entry["adapter"] for entry in key["items"].values()} == {1, 2}
    assert sheet(ITEMS, seed=0)[0] == text
    assert sheet(ITEMS, seed=1)[0] != text


@pytest.mark.parametrize(
    ("won", "lost", "chance"),
    [
        (5, 0, 2 / 32),  # 1/32 on each side
        (4, 1, 2 * 6 / 32),  # (1 + 5) / 32 on each side
        (3, 3, 1.0),
        (0, 0, 1.0),
    ],
)
def test_the_sign_test(won, lost, chance):
    assert sign_test(won, lost) == chance == sign_test(lost, won)


def test_a_judge_who_likes_the_adapter():
    text, key = sheet(ITEMS, seed=3)
    score = read_sheet(judged(text, of_adapter), key, file="s.csv")
    assert (score.items, score.won, score.lost, score.ties) == (20, 20, 0, 0)
    assert score.chance == 2 / 2**20


def test_sides_and_ties_are_told_apart():
    """Planted: a judge who always says 1 wins as often as the adapter stands first."""
    text, key = sheet(ITEMS, seed=3)
    first = sum(entry["adapter"] == 1 for entry in key["items"].values())
    score = read_sheet(judged(text, lambda _: "1"), key, file="s.csv")
    assert (score.won, score.lost) == (first, 20 - first)
    assert read_sheet(judged(text, lambda _: " = "), key, file="s.csv").ties == 20


def test_everything_wrong_is_told_at_once():
    text, key = sheet(ITEMS[:5], seed=0)
    head, *rows = rows_of(judged(text, of_adapter))
    rows[0][4] = ""
    rows[1][2] += " edited"
    rows[2][0] = "other"
    rows[3] = rows[4]
    sink = io.StringIO()
    csv.writer(sink).writerows([head, *rows])
    with pytest.raises(InputError) as error:
        read_sheet(sink.getvalue(), key, file="s.csv")
    told = [finding.message for finding in error.value.findings]
    assert len(told) == 6  # the four rows, and two items whose rows are missing
    assert "is not judged" in told[0]
    assert "not the exported ones" in told[1]
    assert "no item of the key" in told[2]
    assert "stands there twice" in told[3]
    assert error.value.findings[0].line == 2


def test_other_columns_are_refused():
    with pytest.raises(InputError, match="does not begin with the columns"):
        read_sheet("id;better\n", {"items": {}}, file="s.csv")


def test_line_ends_and_a_mark_of_a_spreadsheet_change_nothing():
    item = Item("a", "two\nlines", "b", "c")
    text, key = sheet([item], seed=0)
    back = "\ufeff" + judged(text, of_adapter).replace("two\nlines", "two\r\nlines")
    assert read_sheet(back, key, file="s.csv").items == 1


def test_a_formula_does_not_run_in_a_spreadsheet():
    text, key = sheet([Item("a", "q", '=cmd|"/c calc"!A1', "@x")], seed=0)
    assert {row[2][0] for row in rows_of(text)[1:]} == {"'"}
    assert read_sheet(judged(text, lambda _: "="), key, file="s.csv").ties == 1


def test_a_line_is_the_row_that_a_spreadsheet_shows():
    """Planted: the second item has an answer of three lines, and a blank row stands before it."""
    items = [Item("a", "q", "b", "c"), Item("b", "q", "b\nb\nb", "c")]
    text, key = sheet(items, seed=0)
    head, *rows = rows_of(judged(text, lambda _: "="))
    rows[1][4] = "3"
    sink = io.StringIO()
    csv.writer(sink).writerows([head, rows[0], ["", "", "", "", ""], rows[1]])
    with pytest.raises(InputError) as error:
        read_sheet(sink.getvalue(), key, file="s.csv")
    assert [finding.line for finding in error.value.findings] == [4]


@pytest.mark.parametrize("answer", ["18.50", "007", "1/2", "3-4", "1e5", "$1,200.00", " TRUE "])
def test_a_spreadsheet_does_not_write_a_number_in_its_own_way(answer):
    """It would come back as 18.5, 7, a date: as other texts than the exported ones."""
    text, _ = sheet([Item("a", "18 eggs?", answer, "18 eggs")], seed=0)
    (row,) = rows_of(text)[1:]
    assert sorted(row[2:4]) == sorted([f"'{answer}", "18 eggs"])
    assert row[1] == "18 eggs?"


def test_the_draw_takes_items_that_differ_whatever_their_scores():
    same = [Item("s", "q", "x", " x ")]
    assert len(choose([*ITEMS, *same], most=None, seed=0)) == 20
    assert choose(ITEMS, most=5, seed=0) == choose(list(reversed(ITEMS)), most=5, seed=0)
    with pytest.raises(InputError, match="answer alike"):
        choose(same, most=None, seed=0)
