"""Data files behind a URL: fetched once per machine through fsspec, kept in blobs/ by content.

The pin decides what the bytes are, so a file that lies in the store is never asked for again.
"""

from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.errors import Finding
from hashtune.store.blobs import Say, adopt_file, home, lock, scratch_folder

# what the libraries behind fsspec raise has no base class in common
NETWORK_LIBRARIES = frozenset({"aiohttp", "aiobotocore", "botocore", "fsspec", "s3fs"})
SECONDS_WITHOUT_A_BYTE = 60


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
            failed = _download(url, scratch / "file")
            if failed is not None:
                fix = "check the address and your access, run again, or put the file under data/"
                return Finding("remote", failed, file=url, field=f"{field}.uri", fix=fix)
            found = writers.sha256_file(scratch / "file")
            if found != sha256:
                message = f"sha256 is {found}, pinned is {sha256}"
                fix = f"review what lies there now; to take it set {field}.sha256 to '{found}'"
                return Finding("pin", message, file=url, field=f"{field}.sha256", fix=fix)
            return adopt_file(scratch / "file", sha256)


def _download(url: str, target: Path) -> str | None:
    """None when the file was written, else why not."""
    import fsspec

    scheme = url.partition("://")[0]
    try:
        options = _http_options() if scheme in ("http", "https") else {}
        system = fsspec.filesystem(scheme, skip_instance_cache=True, **options)
        system.get_file(url, str(target))
    except ImportError as error:  # fsspec's own words name the package
        return f"cannot be read: {error}"
    except FileNotFoundError:
        return "does not exist there"
    except Exception as error:
        if not isinstance(error, OSError) and _library(error) not in NETWORK_LIBRARIES:
            raise
        return f"cannot be fetched: {type(error).__name__} {error}".strip()
    return None


def _http_options() -> dict[str, Any]:
    """No limit on the whole download, which may be large; one on silence. Proxies as usual."""
    from aiohttp import ClientTimeout

    silence = SECONDS_WITHOUT_A_BYTE
    timeout = ClientTimeout(total=None, sock_connect=silence, sock_read=silence)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}}


def _library(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]
