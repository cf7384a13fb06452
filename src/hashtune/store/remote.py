"""Data files behind a URL: fetched once per machine through fsspec, kept in blobs/ by content.

The pin decides what the bytes are, so a file that lies in the store is never asked for again.
"""

import time
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.errors import Finding
from hashtune.store.blobs import Say, adopt_file, home, lock, scratch_folder

# what the libraries behind fsspec raise has no base class in common
NETWORK_LIBRARIES = frozenset({"aiohttp", "aiobotocore", "botocore", "fsspec", "s3fs", "urllib3"})
SECONDS_WITHOUT_A_BYTE = 60
PAUSES = (1.0, 5.0)  # before the second and the third try; s3fs tries five times by itself
PASSING = frozenset({429, 500, 502, 503, 504})
# of aiohttp: the server went away once there was a connection
BROKEN_OFF = frozenset({"ClientPayloadError", "ServerDisconnectedError", "ClientOSError"})


def fetch(url: str, sha256: str, *, field: str, say: Say) -> Path | Finding:
    """The file in the store with this content, fetched from the URL where it is not there yet.

    `field` is the part of the spec that declares the file. A finding tells what is wrong: the
    file cannot be had, has another sha256, or was changed in the store.
    """
    blob = home() / "blobs" / sha256
    with lock(sha256, say):
        if blob.is_file():
            if writers.sha256_file(blob) == sha256:
                return blob
            fix = "delete this file and run again: it is fetched anew"
            message = f"{url} was changed after it was stored"
            return Finding("store-differs", message, file=str(blob), fix=fix)
        with scratch_folder() as scratch:
            say(f"  fetches {url}")
            failed = _download(url, scratch / "file", say)
            if failed is not None:
                fix = "check the address and your access, run again, or put the file under data/"
                return Finding("remote", failed, file=url, field=f"{field}.uri", fix=fix)
            found = writers.sha256_file(scratch / "file")
            if found != sha256:
                message = f"sha256 is {found}, pinned is {sha256}"
                fix = f"review what lies there now; to take it set {field}.sha256 to '{found}'"
                return Finding("pin", message, file=url, field=f"{field}.sha256", fix=fix)
            return adopt_file(scratch / "file", sha256)


def _download(url: str, target: Path, say: Say) -> str | None:
    """None when the file was written, else why not. What may pass by itself is tried again."""
    for pause in (*PAUSES, None):
        failed, passes = _attempt(url, target)
        if failed is None or not passes or pause is None:
            break
        say(f"  {failed}; tries again in {pause:g} s")
        time.sleep(pause)
    return failed


def _attempt(url: str, target: Path) -> tuple[str | None, bool]:
    """Why the file was not written (None: it was), and whether that may pass by itself."""
    import fsspec

    scheme = url.partition("://")[0]
    try:
        options = _options(scheme, url)
        system = fsspec.filesystem(scheme, skip_instance_cache=True, **options)
        system.get_file(url, str(target))
    except ImportError as error:  # fsspec's own words name the package
        return f"cannot be read: {error}", False
    except FileNotFoundError:
        return "does not exist there", False
    except Exception as error:
        # a ValueError: what is no address after all, of a redirect for instance
        if not isinstance(error, OSError | ValueError) and _library(error) not in NETWORK_LIBRARIES:
            raise
        status = getattr(error, "status", None)  # aiohttp's words would hold a redirect's address
        words = f"{status} {getattr(error, 'message', '')}" if status else str(error)
        told = f"cannot be fetched: {type(error).__name__} {words}".strip()
        return told, status in PASSING or type(error).__name__ in BROKEN_OFF
    return None, False


def _options(scheme: str, url: str) -> dict[str, Any]:
    """Of https: no limit on the whole download, which may be large; one on silence. Proxies as
    usual. Of s3: s3fs reads the newest version unless it is told that the address names one."""
    if scheme == "s3":
        return {"version_aware": True} if "?versionId=" in url else {}
    if scheme not in ("http", "https"):
        return {}
    from aiohttp import ClientTimeout

    silence = SECONDS_WITHOUT_A_BYTE
    timeout = ClientTimeout(total=None, sock_connect=silence, sock_read=silence)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}}


def _library(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]
