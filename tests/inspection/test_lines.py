"""Source and line of examples: by the conversation that their id begins with."""

from hashtune.inspection.lines import conversation_of, lines_of

CONVERSATIONS = [
    {"id": "0a", "source": "toy", "line": 12},
    {"id": "0b#2", "source": "more", "line": 3},
    {"id": "0c", "source": "toy", "line": 7},
]


def test_the_conversation_in_an_id() -> None:
    assert [conversation_of(name) for name in ("0a", "0a.2", "0b#2", "0b#2.14")] == [
        *("0a", "0a", "0b#2", "0b#2")
    ]


def test_turns_share_their_conversation_s_line_and_unknown_ones_are_left_out() -> None:
    found = lines_of(["0b#2", "0a.4", "0a.2", "0d", "0b"], iter(CONVERSATIONS))
    assert found == {"0b#2": ("more", 3), "0a.4": ("toy", 12), "0a.2": ("toy", 12)}
