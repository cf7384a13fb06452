"""hashtune: run a command, give its exit code. Its module is imported when it is called."""

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from hashtune.cli import streams
from hashtune.cli.commands import parser
from hashtune.cli.parser import REFUSED
from hashtune.errors import EXIT_FAULT, EXIT_INPUT, EXIT_INTERRUPTED, InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (0, 1 for a verdict that is no pass, 2, 70)."""
    streams.prepare()
    try:
        arguments = parser().parse_args(argv)
        _require_project()
        command = import_module(f"hashtune.cli.{arguments.module}")
        return int(command.run(arguments))
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


if __name__ == "__main__":
    sys.exit(main())
