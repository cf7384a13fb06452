"""The page of `hashtune inspect --html`: it takes the place of an older page, and of nothing else.

A file named by mistake (a data file, a source, /dev/full) would be gone: it is replaced whole.
"""

from pathlib import Path

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.inspection.page import HEAD

ANOTHER = "name another file, or delete this one first"


def write_page(file: Path, page: str) -> None:
    """Write the page.

    Raises:
        InputError: the folder does not exist, something else is there, or it cannot be written.
    """
    place = file.resolve()  # the file behind a link, which stays
    if not place.parent.is_dir():
        raise _refused(file, f"{file.parent} is no folder", "name a file in a folder that exists")
    if place.exists() and not _is_page(place):
        raise _refused(file, "is there and is no page of hashtune inspect", ANOTHER)
    try:
        writers.write_text(place, page)
    except OSError as error:
        fix = "name another file, or make this one writable"
        raise _refused(file, f"cannot be written: {error.strerror}", fix) from error


def _is_page(place: Path) -> bool:
    if not place.is_file():  # a folder or a device
        return False
    wanted = HEAD.encode()
    try:
        with place.open("rb") as handle:
            return handle.read(len(wanted)).startswith(wanted[: HEAD.index("<style>")])
    except OSError:
        return False


def _refused(file: Path, message: str, fix: str) -> InputError:
    return InputError(Finding("unwritable", message, file=str(file), field="--html", fix=fix))
