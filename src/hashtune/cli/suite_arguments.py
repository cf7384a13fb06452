"""Options of hashtune suite."""

from hashtune.cli.parser import Parser

EXAMPLE = (
    "Example: hashtune suite add --from build/evaluate --id test-0042 --rule "
    "'json_object=[\"intent\"]' --rationale 'The reply ran into the JSON in March.'"
)


def add_arguments(suite: Parser) -> None:
    """The options of `hashtune suite add`."""
    actions = suite.add_subparsers(required=True, metavar="ACTION")
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
