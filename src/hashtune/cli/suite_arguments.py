"""Options of hashtune suite, apart so that `hashtune --help` imports nothing else."""

import argparse
from typing import TypeAlias

from hashtune.cli.parser import Parser, whole_number

Actions: TypeAlias = "argparse._SubParsersAction[Parser]"
EXAMPLE = (
    "Example: hashtune suite add --from build/evaluate --id test-0042 --rule "
    "'json_object=[\"intent\"]' --rationale 'The reply ran into the JSON in March.'"
)


def add_arguments(suite: Parser) -> None:
    """The actions of `hashtune suite` and their options."""
    actions = suite.add_subparsers(required=True, metavar="ACTION")
    _add_add(actions)
    _add_harness(actions)


def _add_harness(actions: Actions) -> None:
    harness = actions.add_parser(
        "harness",
        help="tasks of lm-evaluation-harness, answered by base and adapter",
        description="Score tasks of lm-evaluation-harness on base and adapter, item by item, into "
        "build/harness. No part of the verdict. Needs pip install -e '.[lm-eval]'.",
    )
    harness.add_argument("tasks", nargs="+", metavar="TASK", help="tasks, or groups of tasks")
    harness.add_argument("--limit", type=whole_number, metavar="N", help="first N items of each")
    harness.add_argument("--include", metavar="DIR", help="folder with task files of your own")
    harness.add_argument("--adapter", default="build/train/adapter", help="folder of the adapter")
    harness.set_defaults(module="suite_harness")


def _add_add(actions: Actions) -> None:
    add = actions.add_parser(
        "add",
        help="add items, refuse repeated and nearly equal ones, refresh the pin in conf/",
        description="Add past failures to a suite as items: one line each, pinned again in "
        f"conf/regression. Nothing is written unless all is sound. {EXAMPLE}",
    )
    add.add_argument(
        "--from",
        dest="answers",
        metavar="PATH",
        help="recorded answers: build/evaluate, or a JSONL file with id, prompt (or messages) and "
        "answer",
    )
    add.add_argument("--id", action="append", default=[], help="which answers; the items' ids")
    add.add_argument("--prompt", metavar="TEXT", help="what is asked, instead of what was recorded")
    add.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="KIND[=VALUE]",
        help="what an answer must hold to pass; VALUE is JSON or a text (repeat for more)",
    )
    add.add_argument(
        "--choice",
        action="append",
        default=[],
        metavar="TEXT",
        help="instead of rules: an answer to choose from, the right one first",
    )
    add.add_argument("--slice", default="past-failures", help="slice of the items")
    add.add_argument(
        "--rationale", required=True, metavar="TEXT", help="why, and what losing it would mean"
    )
    add.add_argument(
        "--to", default="past-failures", metavar="NAME", help="the suite; a new one is made"
    )
    add.add_argument(
        "--config",
        default="conf/regression/default.yaml",
        metavar="FILE",
        help="option file that declares the suites of the spec",
    )
    add.set_defaults(module="suite")
