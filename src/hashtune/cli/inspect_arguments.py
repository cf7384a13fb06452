"""The options of hashtune inspect, apart so that `hashtune --help` imports nothing else."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument("--split", choices=("train", "eval"), default="train")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--examples", nargs="+", metavar="ID", help="examples by their ids")
    choice.add_argument("--rows", nargs="+", type=int, metavar="N", help="packed rows, from 0")
    choice.add_argument("--step", type=int, metavar="N", help="an optimizer step, from 1")
    choice.add_argument("--longest", action="store_true", help="the longest examples")
    choice.add_argument("--random", action="store_true", help="random examples (see --seed)")
    choice.add_argument("--dropped", metavar="REASON", help="rows dropped for this reason")
    choice.add_argument(
        "--lengths", action="store_true", help="what each max_seq_len would lose, and a suggestion"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --random")
    parser.add_argument("-n", type=int, default=3, help="how many, where none are named")
    parser.add_argument("--ids", action="store_true", help="token ids too")
    parser.add_argument("--color", action="store_true", help="colours although this is no terminal")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page instead")
