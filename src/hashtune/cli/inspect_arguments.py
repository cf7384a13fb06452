"""The options of hashtune inspect, apart so that `hashtune --help` imports nothing else."""

import argparse
from pathlib import Path

from hashtune.cli.parser import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument("--split", choices=("train", "eval"), help="train, unless named")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--examples", nargs="+", metavar="ID", help="examples by their ids")
    choice.add_argument(
        "--rows", nargs="+", type=whole_number, metavar="N", help="packed rows, from 0"
    )
    choice.add_argument("--step", type=whole_number, metavar="N", help="an optimizer step, from 1")
    choice.add_argument("--longest", action="store_true", help="the longest examples")
    choice.add_argument("--random", action="store_true", help="random examples (see --seed)")
    choice.add_argument("--dropped", metavar="REASON", help="rows dropped for this reason")
    choice.add_argument(
        "--lengths",
        nargs="*",
        type=whole_number,
        metavar="N",
        help="the lengths, and what each of these max_seq_len (or some) would lose; a suggestion",
    )
    parser.add_argument("--seed", type=whole_number, help="of --random; 0, unless named")
    parser.add_argument("-n", type=whole_number, default=3, help="how many, where none are named")
    parser.add_argument("--ids", action="store_true", help="token ids too")
    parser.add_argument("--color", action="store_true", help="colours although this is no terminal")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page instead")
