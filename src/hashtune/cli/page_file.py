"""A page that a command writes takes the place of an older page of its own, and of nothing else.

A file named by mistake (a data file, a source, /dev/full) would be gone: it is replaced whole.
"""

from pathlib import Path

from hashtune import writers
from hashtune.errors import Finding, InputError

ANOTHER = "name another file, or delete this one first"


def write_page(file: Path, page: str, *, start: str, command: str, option: str) -> None:
    """Write the page.

    Args:
        file: where.
        page: the text.
        start: how every page of the command begins.
        command: its name after `hashtune`.
        option: the option that named the file.

    Raises:
        InputError: the folder does not exist, something else is there, or it cannot be written.
    """

    def refused(message: str, fix: str) -> InputError:
        return InputError(Finding("unwritable", message, file=str(file), field=option, fix=fix))

    place = file.resolve()  # the file behind a link, which stays
    if not place.parent.is_dir():
        raise refused(f"{file.parent} is no folder", "name a file in a folder that exists")
    if place.exists() and not _starts(place, start):
        raise refused(f"is there and is no page of hashtune {command}", ANOTHER)
    try:
        writers.write_text(place, page)
    except OSError as error:
        fix = "name another file, or make this one writable"
        raise refused(f"cannot be written: {error.strerror}", fix) from error


def _starts(place: Path, start: str) -> bool:
    if not place.is_file():  # a folder or a device
        return False
    wanted = start.encode()
    try:
        with place.open("rb") as handle:
            return handle.read(len(wanted)) == wanted
    except OSError:
        return False
