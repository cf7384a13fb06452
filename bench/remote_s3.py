"""s3:// with the real s3fs against a server of our own that speaks as much S3 as a download needs.

    pip install -c requirements.lock s3fs
    PYTHONPATH=src python bench/remote_s3.py

s3fs is optional and locked nowhere, so this is no test of the suite. Prints what was seen and
exits 1 if anything is not as stated.
"""

import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from urllib.parse import parse_qs, urlsplit

from hashtune.errors import Finding
from hashtune.store.blobs import home
from hashtune.store.remote import fetch

OLD, NEW = (f'{{"text":"{age}"}}\n'.encode() * 1000 for age in ("old", "new"))
LARGE = bytes(range(256)) * 4 * 60_000  # 61 MB: s3fs reads it in parts, side by side
FILES = {("/b/d.jsonl", "1"): OLD, ("/b/d.jsonl", ""): NEW, ("/b/large.jsonl", ""): LARGE}
ERRORS = {"/b/secret.jsonl": (403, "AccessDenied"), "/b/slow.jsonl": (503, "SlowDown")}


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of an object, with ranges; errors as XML."""

    server: "Server"

    def do_HEAD(self) -> None:
        """Metadata only."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """The object or a part of it."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        parts = urlsplit(self.path)
        version = parse_qs(parts.query).get("versionId", [""])[0]
        self.server.asked.append(self.path)
        data = FILES.get((parts.path, version))
        if data is None:
            status, code = ERRORS.get(parts.path, (404, "NoSuchKey"))
            xml = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
            self._send(status, xml if body else b"", len(xml), {"Content-Type": "application/xml"})
            return
        first, last = 0, len(data) - 1
        if wanted := self.headers.get("Range"):
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end or last), last)
        part = data[first : last + 1]
        extra = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        if wanted:
            extra["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        cut = self.server.breaks.pop() if body and self.server.breaks else None
        self._send(206 if wanted else 200, part[:cut] if body else b"", len(part), extra)

    def _send(self, status: int, body: bytes, length: int, extra: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**extra, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # s3fs leaves a large file and asks for its parts
            self.wfile.write(body)
        self.close_connection = len(body) < length

    def log_message(self, *_: object) -> None:
        """Be silent."""


class Server(ThreadingHTTPServer):
    """`breaks` holds after how many bytes the next answers end, `asked` every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.breaks: list[int] = []
        self.asked: list[str] = []


@contextmanager
def serving() -> Iterator[Server]:
    """A running server that the S3 client of this process is pointed at."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_CONFIG_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(uri: str, data: bytes) -> str:
    """What fetch says of this address with the pin of these bytes: "" for the right file."""
    pin = hashlib.sha256(data).hexdigest()
    found = fetch(uri, pin, field="data.test", say=print)
    if list((home() / "tmp").iterdir()):
        return "something half-written is left"
    if isinstance(found, Finding):
        return f"{found.rule}: {found.message}"
    return "" if found.read_bytes() == data else "other bytes"


def checks(server: Server) -> Iterator[tuple[str, bool, str]]:
    """(claim, whether it holds, what was seen)."""

    def stated(claim: str, seen: str, expected: str) -> tuple[str, bool, str]:
        return claim, seen.startswith(expected) if expected else not seen, seen

    yield stated("the newest version", get("s3://b/d.jsonl", NEW), "")
    asked = len(server.asked)
    yield stated("the store, without a request", get("s3://b/d.jsonl", NEW), "")
    yield "no request", len(server.asked) == asked, str(server.asked[asked:])
    yield stated("a named version", get("s3://b/d.jsonl?versionId=1", OLD), "")
    yield stated("another sha256", get("s3://b/d.jsonl", b"x"), "pin: sha256 is ")
    yield stated("no such key", get("s3://b/none.jsonl", b"y"), "remote: does not exist there")
    yield stated("no access", get("s3://b/secret.jsonl", b"z"), "remote: cannot be fetched: Perm")
    yield stated("a file read in parts", get("s3://b/large.jsonl", LARGE), "")
    (home() / "blobs" / hashlib.sha256(NEW).hexdigest()).unlink()
    server.breaks = [5000, 100]
    yield stated("broken off twice, whole in the end", get("s3://b/d.jsonl", NEW), "")
    yield "both breaks were met", not server.breaks, str(server.breaks)
    (home() / "blobs" / hashlib.sha256(NEW).hexdigest()).unlink()
    server.breaks = [10] * 100
    yield stated("broken off for ever", get("s3://b/d.jsonl", NEW), "remote: cannot be fetched: ")
    server.breaks = []
    yield stated("and whole once it is not", get("s3://b/d.jsonl", NEW), "")
    yield stated("asked too often", get("s3://b/slow.jsonl", b"s"), "remote: cannot be fetched: ")


def main() -> int:
    """Run every check; 1 if one does not hold."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, serving() as server:
        os.environ["HASHTUNE_HOME"] = folder
        for claim, holds, seen in checks(server):
            failed += not holds
            print(f"{'ok  ' if holds else 'FAIL'} {claim}: {seen or 'the right file'}")
    print(f"s3fs {metadata.version('s3fs')}, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
