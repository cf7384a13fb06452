"""Sheets as text and as a page: worked by hand, and nothing of the data becomes markup."""

import re
from typing import Any

from hashtune.inspection.page import as_page
from hashtune.inspection.pieces import Piece
from hashtune.inspection.sheets import (
    Document,
    Sheet,
    dropped_sheet,
    example_sheet,
    row_sheet,
    step_sheet,
)
from hashtune.inspection.terminal import as_text

PIECES = [
    Piece("<|im_start|>", control=True, tokens=((1, "<|im_start|>"),)),
    Piece("user\nhi", tokens=((9, "user"), (10, "\n"), (11, "hi"))),
    Piece("yes", trained=True, tokens=((12, "y"), (13, "es"))),
    Piece("<|im_end|>", trained=True, control=True, tokens=((2, "<|im_end|>"),)),
    Piece("\n", tokens=((10, "\n"),)),
]
SHEET = Sheet("train example a", ["3 of 8 tokens trained"], [Document("", PIECES)])
ROW = {
    "row": 4,
    "example_ids": ["a", "b"],
    "lengths": [3, 2],
    "input_ids": [1, 40, 2, 41, 2],
    "labels": [-100, 40, 2, -100, 2],
}
STEP = {"step": 7, "epoch": 2, "rows": [4], "trained_tokens": 12, "tokens": 20}


def test_without_colour_trained_text_is_in_brackets() -> None:
    assert as_text([SHEET], color=False, ids=False) == (
        "──────── train example a\n"
        "  3 of 8 tokens trained\n"
        "<|im_start|>user⏎\nhi⟦yes<|im_end|>⟧⏎\n\n"
    )


def test_with_colour_trained_text_is_green_and_control_tokens_differ() -> None:
    text = as_text([SHEET], color=True, ids=False)
    assert text.split("\n", 2)[2] == (
        "\x1b[2m<|im_start|>\x1b[0muser⏎\nhi\x1b[32myes\x1b[0m\x1b[32m\x1b[1m<|im_end|>\x1b[0m⏎\n\n"
    )


def test_ids_stand_one_to_a_line_with_a_star_for_trained() -> None:
    lines = as_text([SHEET], color=False, ids=True).split("\n")[2:]
    assert lines[:3] == ["       1   <|im_start|>", "       9   user", "      10   ⏎"]
    assert lines[4] == "      12 * y"


def test_no_escape_sequence_of_the_data_reaches_the_terminal() -> None:
    evil = Sheet("\x1b]0;t\x07", ["\x1b[2J"], [Document("\x9b1m", [Piece("\x1b[8m")])])
    assert (
        re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", as_text([evil], color=False, ids=False)) == []
    )


def test_a_script_in_the_data_stays_text() -> None:
    """Every place where data enters the page: title, fact, heading, token, whole piece."""
    evil = '<script>alert("1")</script>\' onload=x'
    token = Piece(evil, True, tokens=((5, evil),))
    broken = Piece(f"{evil}ü", tokens=((5, "Ã"), (6, "¼")))
    page = as_page([Sheet(evil, [evil], [Document(evil, [token, broken])])], ids=True)
    assert page.count("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&#x27; onload=x") == 5
    assert "<script" not in page and "' onload" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=", page)


def test_a_page_marks_trained_and_control_tokens() -> None:
    page = as_page([SHEET], ids=False)
    assert '<span class="t" title="12">y</span><span class="t" title="13">es</span>' in page
    assert '<span class="t c" title="2">&lt;|im_end|&gt;</span>' in page
    assert '<span title="10">⏎\n</span>' in page
    assert "<small>" not in page and "<small>12</small>" in as_page([SHEET], ids=True)


def test_example_says_where_it_comes_from_and_what_is_trained(tokenizer: Any) -> None:
    example = {
        "id": "e",
        "conversation_id": "c",
        "source": "toy",
        "input_ids": [1, 40, 2, 41],
        "labels": [-100, 40, 2, -100],
        "straddling": 1,
    }
    sheet = example_sheet(example, tokenizer, split="eval")
    assert sheet.title == "eval example e"
    assert list(sheet.facts) == [
        "source toy, conversation c",
        "2 of 4 tokens trained (50.0%): 1-2",
        "1 tokens reach into a body and are not trained",
    ]


def test_row_has_a_border_before_each_document_and_a_weight_in_its_step(tokenizer: Any) -> None:
    sheet = row_sheet(ROW, tokenizer, split="train", step=STEP)
    assert [document.heading for document in sheet.documents] == [
        "document 1 of 2: a, 2 of 3 tokens trained (66.7%): 1-2",
        "document 2 of 2: b, 1 of 2 tokens trained (50.0%): 1-1",
    ]
    assert list(sheet.facts) == [
        "3 of 5 tokens trained (60.0%): 1-2, 4-4",
        "weight 0.2500 (3 of 12 trained) in step 7",
    ]
    assert step_sheet(STEP, [ROW]).facts == [
        "epoch 2, 20 tokens, 12 trained",
        "row 4: weight 0.2500 (3 of 12 trained), 5 tokens in 2 documents",
    ]


def test_dropped_row_with_and_without_its_conversation() -> None:
    line = {
        "stage": "prepare",
        "source": "toy",
        "line": 3,
        "id": "x",
        "reason": "blank",
        "detail": "output",
    }
    sheet = dropped_sheet(line, None)
    assert (sheet.title, sheet.facts, sheet.documents) == (
        "toy:3 (x)",
        ["prepare: blank: output"],
        [],
    )
    messages = '[{"role":"user","content":"hi"},{"role":"assistant","content":null}]'
    shown = dropped_sheet({**line, "detail": ""}, messages)
    assert shown.facts == ["prepare: blank"]
    assert [(d.heading, d.pieces[0].text) for d in shown.documents] == [
        ("user", "hi"),
        ("assistant", "null"),
    ]
