"""Words of many scripts: marks belong to them, and where no spaces are, characters are words."""

import pytest

from hashtune.data.leakage import Item, leakage
from hashtune.data.near_duplicates import shingles
from hashtune.data.words import without_signs, words, words_and_signs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the x_1, of 3.5!", ["the", "x_1", "of", "3", "5"]),
        ("हिन्दी में बात", ["हिन्दी", "में", "बात"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("مُحَمَّد", ["مُحَمَّد"]),
        ("x\u0304 y", ["x\u0304", "y"]),  # no composed form
        ("한국어 문장", ["한국어", "문장"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("ພາສາລາວ", ["ພ", "າ", "ສ", "າ", "ລ", "າ", "ວ"]),
        ("ខ្មែរ", ["ខ្", "មែ", "រ"]),
        ("မြန်မာ", ["မြ", "န်", "မာ"]),
        ("今日は。", ["今", "日", "は"]),
        ("abc今x", ["abc", "今", "x"]),
        ("?! \U0001f600", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


def test_signs_of_arithmetic_are_no_punctuation_where_they_count():
    assert words_and_signs("so, 12 + 3-4?") == ["so", "12", "+", "3", "-", "4"]
    assert words("so, 12 + 3-4?") == ["so", "12", "3", "4"]
    assert without_signs(["so", "12", "+", "3", "-", "4"]) == ["so", "12", "3", "4"]


def test_words_that_differ_in_a_vowel_sign_are_two_words():
    """Planted: without their marks these are the same letters, and a run of 3 letters leaked."""
    assert shingles("की का", 1) == {"की", "का"}
    report = leakage([Item("t", 1, ["दिनों की बात"])], [Item("h", 1, ["दीन का बेटा"])], 3)
    assert report.leaked == 0
