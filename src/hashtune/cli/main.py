"""hashtune: its commands. The module of a command is imported when it is called."""

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from hashtune.cli import streams
from hashtune.cli.inspect_arguments import add_arguments
from hashtune.cli.parser import REFUSED, Parser
from hashtune.errors import EXIT_FAULT, EXIT_INPUT, EXIT_INTERRUPTED, InputError

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (0, 1 for a verdict that is no pass, 2, 70)."""
    streams.prepare()
    try:
        arguments = _parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = arguments.command
        _require_project()
        return command(arguments)
    except InputError as error:
        print(f"{REFUSED}\n{error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception:  # noqa: BLE001  the edge: keeps the traceback and exits 70
        traceback.print_exc()
        print("hashtune: this is a fault of hashtune (traceback above).", file=sys.stderr)
        return EXIT_FAULT


def _require_project() -> None:
    """Refuse to run outside a project, or in one whose own code is not the code that runs."""
    from hashtune.errors import Finding

    if not (Path("conf/config.yaml").is_file() and Path("dvc.yaml").is_file()):
        raise InputError(
            Finding(
                "no-project",
                f"{Path.cwd().name}/ holds no conf/config.yaml and dvc.yaml",
                fix="run hashtune in the root of a project",
            )
        )
    if Path("src/hashtune").is_dir():
        from hashtune.lineage.code import foreign_code

        fix = "make setup, then `source .venv/bin/activate`: each clone has its own .venv"
        if findings := foreign_code(Path(), fix=fix):
            raise InputError(findings)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hashtune", description="Rebuild any fine-tuned adapter from Git and data hashes."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        *(_add_compose, _add_check, _add_base, _add_inspect, _add_step, _add_chat),
        *(_add_verify, _add_doctor),
    ):
        add(commands)
    return parser


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
    compose.set_defaults(command=_compose)


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
    check.set_defaults(command=_check)


def _add_base(commands: Commands) -> None:
    base = commands.add_parser(
        "base",
        help="print the folder of the pinned base model",
        description="Print the folder of the pinned base model, as the stage base left it.",
    )
    base.set_defaults(command=_base)


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="examples, rows or steps with the trained tokens marked",
        description="Show examples, rows or steps as the model sees them, trained tokens marked.",
    )
    add_arguments(inspect)
    inspect.set_defaults(command=_inspect)


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
    step.set_defaults(command=_step)


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
    chat.set_defaults(command=_chat)


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
    verify.set_defaults(command=_verify)


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="states of Git, DVC and the environment, each with the command that heals it",
        description="Look for states in which a run goes wrong and name the command that heals "
        "each. Changes nothing; exit code 1 when something needs healing.",
    )
    doctor.set_defaults(command=_doctor)


def _compose(arguments: argparse.Namespace) -> int:
    from hashtune.cli.compose import run

    return run(arguments.overrides, only_print=arguments.print)


def _check(arguments: argparse.Namespace) -> int:
    from hashtune.cli.check import check_gate, check_spec

    return check_gate() if arguments.gate else check_spec()


def _base(_arguments: argparse.Namespace) -> int:
    from hashtune.cli.base import run

    return run()


def _inspect(arguments: argparse.Namespace) -> int:
    from hashtune.cli.inspect import run

    return run(arguments)


def _step(arguments: argparse.Namespace) -> int:
    from hashtune.cli.step import run

    return run(arguments)


def _chat(arguments: argparse.Namespace) -> int:
    from hashtune.cli.chat import run

    return run(Path(arguments.adapter), message=arguments.message, system=arguments.system)


def _doctor(_arguments: argparse.Namespace) -> int:
    from hashtune.cli.doctor import run

    return run()


def _verify(arguments: argparse.Namespace) -> int:
    from hashtune.cli.verify import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
