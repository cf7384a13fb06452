"""The commands of hashtune and their options. Imports no command: `--help` starts at once."""

import argparse
from typing import TypeAlias

from hashtune.cli.inspect_arguments import add_arguments as add_inspect_arguments
from hashtune.cli.parser import Parser, whole_number
from hashtune.cli.plan_arguments import add_arguments as add_plan_arguments
from hashtune.cli.suite_arguments import add_arguments as add_suite_arguments

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def parser() -> argparse.ArgumentParser:
    """Parses the command line; `module` of what it gives is the command's in hashtune.cli."""
    whole = Parser(
        prog="hashtune", description="Rebuild any fine-tuned adapter from Git and data hashes."
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return whole


def _add_compose(commands: Commands) -> None:
    compose = commands.add_parser(
        "compose",
        help="compose conf/ and Hydra overrides into params.yaml, as DVC does",
        description="Compose conf/ and overrides into params.yaml: hashtune compose optim.lr=1e-4",
    )
    compose.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides, as after -S"
    )
    compose.add_argument("--print", action="store_true", help="print, do not write params.yaml")
    compose.set_defaults(module="compose")


def _add_check(commands: Commands) -> None:
    check = commands.add_parser(
        "check",
        help="check the spec, or with --gate the verdict",
        description="Check fields, pins and files of params.yaml against conf/. What needs the "
        "model or the data is checked by the stages: method.targets by plan, tensors by train.",
    )
    check.add_argument(
        "--gate", action="store_true", help="exit 1 unless the gate's verdict is pass and current"
    )
    check.set_defaults(module="check")


def _add_base(commands: Commands) -> None:
    base = commands.add_parser(
        "base",
        help="print the folder of the pinned base model",
        description="Print the folder of the pinned base model, as the stage base left it.",
    )
    base.set_defaults(module="base")


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="examples, rows or steps with the trained tokens marked",
        description="Show examples, rows or steps as the model sees them, trained tokens marked.",
    )
    add_inspect_arguments(inspect)
    inspect.set_defaults(module="inspect")


def _add_plan(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="does it fit, on which machine, and what to change; of this checkout or of any base",
        description="Explain the memory plan of this checkout (reports/plan.json). With --model: "
        "answer for a base, without data, network or weights. Settings are Hydra overrides.",
    )
    add_plan_arguments(plan)
    plan.set_defaults(module="plan")


def _add_step(commands: Commands) -> None:
    step = commands.add_parser(
        "step",
        help="the rows of a training step, each document with source file and line",
        description="List the rows of a training step, each document with source file and line.",
    )
    step.add_argument("number", metavar="N", help="an optimizer step, from 1")
    step.add_argument(
        "--run", action="store_true", help="run it again in memory: loss, gradient norm, documents"
    )
    step.add_argument("--adapter", metavar="DIR", help="with --run: these weights, not its own")
    step.add_argument(
        "--unreleased", action="store_true", help="with --adapter: one that the gate did not pass"
    )
    step.set_defaults(module="step")


def _add_chat(commands: Commands) -> None:
    chat = commands.add_parser(
        "chat",
        help="base and adapter side by side",
        description="Answer with base and adapter (or trained weights) side by side, as evaluation "
        "does.",
    )
    chat.add_argument("message", nargs="?", help="one user message; without it: a conversation")
    chat.add_argument("--system", help="system message of the conversation")
    chat.add_argument("--adapter", default="build/train/adapter", help="folder of the adapter")
    chat.add_argument(
        "--unreleased", action="store_true", help="also an adapter that the gate did not pass"
    )
    chat.set_defaults(module="chat")


def _add_verify(commands: Commands) -> None:
    verify = commands.add_parser(
        "verify",
        help="rebuild a revision from Git and data hashes, and compare every output",
        description="Rebuild a revision with an empty cache and an empty store, and compare every "
        "output with the recorded one. Exit code 0 for identical bits, 1 for a difference.",
    )
    verify.add_argument(
        "revision",
        nargs="?",
        default="HEAD",
        metavar="REV",
        help="a commit, branch or tag such as triage@v1.0.0 (default: HEAD)",
    )
    verify.add_argument("--steps", metavar="N", help="train N steps only and compare their curves")
    verify.add_argument(
        "--resume",
        action="store_true",
        help="instead: train 100 steps (--steps) twice, once killed at 60 (--kill), and compare",
    )
    verify.add_argument("--kill", metavar="N", help="with --resume: the step to be killed after")
    verify.set_defaults(module="verify")


def _add_release(commands: Commands) -> None:
    release = commands.add_parser(
        "release",
        help="register a passed, clean, pushed commit with GTO",
        description="Register the adapter of HEAD as a version. Refused, with every reason, unless "
        "the gate passed it, nothing is uncommitted, and Git and DVC remotes have it.",
    )
    release.add_argument("version", nargs="?", metavar="VERSION", help="as v1.2.0 (default: next)")
    release.add_argument("--bump", choices=("major", "minor", "patch"), help="which part is next")
    release.add_argument("--stage", metavar="NAME", help="and assign a stage, such as prod")
    release.add_argument("--dry-run", action="store_true", help="check all, tag nothing")
    release.set_defaults(module="release")


def _add_suite(commands: Commands) -> None:
    suite = commands.add_parser(
        "suite",
        help="add past failures to a regression suite; tasks of lm-evaluation-harness",
        description="Regression suites: add past failures as items that no adapter may lose.",
    )
    add_suite_arguments(suite)


def _add_judge(commands: Commands) -> None:
    judge = commands.add_parser(
        "judge",
        help="a blind sheet of both answers for human judgement, and its score",
        description="Judge base and adapter by hand without knowing which answer is whose.",
    )
    actions = judge.add_subparsers(required=True, metavar="ACTION")
    export = actions.add_parser("export", help="write build/judge/sheet.csv and its key")
    export.add_argument("--items", type=whole_number, metavar="N", help="at most N items")
    export.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw (default 0)")
    export.add_argument("--again", action="store_true", help="in place of an older sheet")
    export.set_defaults(module="judge", sheet=None)
    score = actions.add_parser("score", help="score a judged sheet by the sign test")
    score.add_argument("sheet", metavar="FILE", help="the sheet with its column `better` filled in")
    score.set_defaults(module="judge")


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="states of Git, DVC and the environment, each with the command that heals it",
        description="Look for states in which a run goes wrong and name the command that heals "
        "each. Changes nothing; exit code 1 when something needs healing.",
    )
    doctor.set_defaults(module="doctor")


def _add_review(commands: Commands) -> None:
    review = commands.add_parser(
        "review",
        help="what a pull request changes: spec in words, reruns, figures, data",
        description="Write as Markdown what HEAD changes against BASE: settings by consequence, "
        "stages that rerun, gate, figures, memory plan, rows of the data.",
    )
    review.add_argument(
        "span", metavar="BASE..HEAD", help="two revisions; BASE...HEAD begins where they parted"
    )
    review.add_argument("--output", metavar="FILE", help="write the page there")
    review.set_defaults(module="review")


def _add_report(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        help="a run as one HTML page, or several runs compared",
        description="Write one self-contained HTML page: of the workspace, of a revision or DVC "
        "experiment, or of several compared.",
    )
    report.add_argument(
        "runs", nargs="*", metavar="RUN", help="revisions or experiments, or `workspace`"
    )
    report.add_argument("--experiments", action="store_true", help="and every DVC experiment")
    report.add_argument("--output", metavar="FILE", default="build/report.html")
    report.set_defaults(module="report")


COMMANDS = (
    *(_add_compose, _add_check, _add_plan, _add_base, _add_inspect, _add_step),
    *(
        _add_chat,
        _add_verify,
        _add_suite,
        _add_release,
        _add_doctor,
        _add_review,
        _add_report,
        _add_judge,
    ),
)
