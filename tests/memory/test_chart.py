"""Bars of text, to the character."""

from hashtune.memory.chart import BLOCKS, GREEN, PLAIN, RED, WIDTH, chart

BUCKETS = {"weights": 5_000_000_000, "activations": 2_500_000_000, "master": 0, "adapter": 10**6}


def test_bars_are_shares_of_the_memory_largest_first() -> None:
    assert chart(BUCKETS, available=10_000_000_000) == [
        f"weights      {'#' * 20}{'.' * 20}     5.00 GB   50%",
        f"activations  {'#' * 10}{'.' * 30}     2.50 GB   25%",
        f"adapter      {'.' * 40}     0.00 GB    0%",
        f"needed       {'#' * 30}{'.' * 10}     7.50 GB   75%",
    ]


def test_what_does_not_fit_is_drawn_to_what_is_needed() -> None:
    lines = chart({"weights": 15_000_000_000, "adapter": 5_000_000_000}, available=10_000_000_000)
    assert lines == [
        f"weights  {'#' * 30}{'.' * 10}    15.00 GB  150%",
        f"adapter  {'#' * 10}{'.' * 30}     5.00 GB   50%",
        f"needed   {'#' * WIDTH}    20.00 GB  200%",
    ]


def test_plain_ascii_unless_asked() -> None:
    plain = chart(BUCKETS, available=10_000_000_000)
    assert all(line.isascii() for line in plain)
    assert not any("\x1b" in line for line in plain)
    blocks = chart(BUCKETS, available=10_000_000_000, marks=BLOCKS, color=True)
    assert blocks[0].count("█") == 20
    assert blocks[-1].startswith(GREEN)
    assert blocks[-1].endswith(PLAIN)
    assert chart(BUCKETS, available=10**9, color=True)[-1].startswith(RED)
