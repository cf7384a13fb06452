"""Options of the commands: what argparse refuses is told as every other bad input is."""

import argparse
import re
import sys
from typing import Any, NoReturn

from hashtune.errors import EXIT_INPUT, Finding, InputError, nearest

NAMED = re.compile(r"argument (?P<name>[^:]+): (?P<message>.*)", re.DOTALL)
CHOICE = re.compile(r"invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)", re.DOTALL)
REFUSED = "hashtune: refused, nothing was changed."


class Parser(argparse.ArgumentParser):
    """Ends with 2 and a finding: field, message, rule and fix."""

    def error(self, message: str) -> NoReturn:
        """Print the finding, and end the process."""
        print(f"{REFUSED}\n{InputError(self._finding(message))}", file=sys.stderr)
        sys.exit(EXIT_INPUT)

    def _finding(self, message: str) -> Finding:
        help_text = f"{self.prog} --help"
        found = NAMED.fullmatch(message)
        if found is None:
            return Finding("usage", message, fix=help_text)
        name, said = found["name"], found["message"]
        if choice := CHOICE.fullmatch(said):
            known = re.findall(r"'([^']*)'", choice["known"])
            given = choice["given"]
            return Finding("usage", f"there is no {given!r}", field=name, fix=nearest(given, known))
        return Finding("usage", said, field=name, fix=help_text)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but what a subcommand does not know is its own error, with its options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            fix = nearest(unknown[0], self._option_string_actions)
            message = f"does not know {', '.join(map(repr, unknown))}"
            finding = Finding("usage", message, field=self.prog, fix=fix)
            print(f"{REFUSED}\n{InputError(finding)}", file=sys.stderr)
            sys.exit(EXIT_INPUT)
        return found, unknown


def whole_number(text: str) -> int:
    """A type for argparse that says what was expected."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
