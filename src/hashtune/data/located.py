"""Where a declared file lies, and whether it is the pinned one."""

from pathlib import Path

from hashtune import writers
from hashtune.errors import Finding
from hashtune.spec.places import absence, is_lfs_pointer
from hashtune.spec.rows import secret_fault

MOVE_INSIDE = "put the file under the project root and name it relative to that"


def resolve(uri: str, root: Path, *, field: str) -> Path | Finding:
    """The file that a spec names relative to the project root, or why it is refused.

    It must exist, be a file and lie inside `root`: no scheme, no absolute path, no "..", no
    symlink that leads outside, since none of these means the same in another checkout.
    """
    if secret := secret_fault(uri):
        return Finding(secret[0], secret[1], field=field, fix=secret[2])  # does not repeat it
    path = root / uri.replace("\0", "")
    try:
        fault = _uri_fault(uri) or _path_fault(path, root)
    except OSError:  # a name too long
        fault = "no-file", "cannot be the name of a file", None
    if fault is None:
        return path
    rule, message, fix = fault
    return Finding(rule, f"{uri!r} {message}", field=field, fix=fix)


def _uri_fault(uri: str) -> tuple[str, str, str | None] | None:
    """(rule, message, fix) for a text that names no path inside a project."""
    if "://" in uri:
        return "outside", "is a URL", "fetch it once with `dvc import-url` and pin it"
    if not uri.strip() or "\0" in uri:
        return "no-file", "is no path", None
    if Path(uri).is_absolute() or ".." in Path(uri).parts:
        return "outside", "is not relative to the project root or leaves it", MOVE_INSIDE
    return None


def _path_fault(path: Path, root: Path) -> tuple[str, str, str | None] | None:
    if not path.is_file():
        return "no-file", *absence(root, path.relative_to(root).as_posix())
    if not path.resolve().is_relative_to(root.resolve()):
        fix = f"{MOVE_INSIDE} (DVC: `dvc config cache.type copy`, `dvc checkout --relink`)"
        return "outside", "is a link that leads outside the project root", fix
    return None


def check_pin(path: Path, *, sha256: str | None, field: str, shown: str) -> Finding | None:
    """None when the file's sha256 is the pinned one, else a finding that names the field."""
    actual = writers.sha256_file(path)
    if sha256 is None:
        fix = f"set {field} to '{actual}'"
        return Finding("unpinned", "has no sha256", file=shown, field=field, fix=fix)
    if actual == sha256:
        return None
    message = f"sha256 is {actual}, pinned is {sha256}"
    fix = f"get the pinned file back, or review the new one and set {field} to '{actual}'"
    if is_lfs_pointer(path):
        fix = "this is a Git LFS pointer: git lfs pull"
    return Finding("pin", message, file=shown, field=field, fix=fix)
