"""Remote data files: fetched once by content, refused when they are not what is pinned."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from hashtune.errors import Finding
from hashtune.store import remote
from hashtune.store.blobs import home
from hashtune.store.remote import fetch

DATA = b'{"instruction":"a","output":"x"}\n' * 1000
PIN = hashlib.sha256(DATA).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file, or a status, or half of what it promises."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.status, self.sent, self.asked = DATA, 200, len(DATA), 0
        self.faults: list[int] = []  # statuses of the first answers; 0 closes midway
        self.url = f"http://127.0.0.1:{self.server_address[1]}/d.jsonl"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        fault = self.server.faults.pop(0) if self.server.faults else None
        self.send_response(fault or self.server.status)
        self.send_header("Content-Length", str(len(self.server.data)))
        self.end_headers()
        self.wfile.write(self.server.data[: 100 if fault == 0 else self.server.sent])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))


def get(url: str, pin: str = PIN) -> Path | Finding:
    return fetch(url, pin, field="data.sources[0]", say=lambda _: None)


def refused(url: str, pin: str = PIN) -> Finding:
    found = get(url, pin)
    assert isinstance(found, Finding)
    assert not list((home() / "blobs").glob("*"))
    assert not list((home() / "tmp").iterdir())
    return found


def test_a_file_is_fetched_once_and_kept_by_its_content(server):
    path = get(server.url)
    assert path == home() / "blobs" / PIN
    assert isinstance(path, Path) and path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o444
    server.status = 500
    assert get(server.url) == path
    assert server.asked == 1


def test_any_file_system_of_fsspec_will_do():
    fsspec.filesystem("memory").pipe("/bucket/d.jsonl", DATA)
    path = get("memory://bucket/d.jsonl")
    assert isinstance(path, Path) and path.read_bytes() == DATA


def test_another_content_is_refused_and_not_kept(server):
    found = refused(server.url, "0" * 64)
    assert str(found) == (
        f"{server.url}: data.sources[0].sha256: sha256 is {PIN}, pinned is {'0' * 64} [pin]\n"
        f"    fix: review what lies there now; to take it set data.sources[0].sha256 to '{PIN}'"
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "does not exist there"), (403, "cannot be fetched: "), (500, "cannot be fetched: ")],
)
def test_a_refusal_of_the_server_is_a_finding(server, status, message):
    server.status = status
    found = refused(server.url)
    assert (found.rule, found.field) == ("remote", "data.sources[0].uri")
    assert found.message.startswith(message)


def test_a_download_that_breaks_off_is_a_finding(server):
    server.sent = 100
    assert refused(server.url).rule == "remote"


@pytest.mark.parametrize("faults", [[0, 0], [503, 429], [500, 0]])
def test_what_passes_by_itself_is_tried_again(server, faults):
    """Each try begins the file anew: after half of one, the whole is there once."""
    server.faults = faults
    said: list[str] = []
    path = fetch(server.url, PIN, field="data.sources[0]", say=said.append)
    assert isinstance(path, Path) and path.read_bytes() == DATA
    assert server.asked == 3
    assert [line.endswith("tries again in 0 s") for line in said] == [False, True, True]


@pytest.mark.parametrize(("status", "asked"), [(403, 1), (404, 1), (410, 1), (500, 3)])
def test_what_stays_as_it_is_is_asked_once(server, status, asked):
    server.status = status
    refused(server.url)
    assert server.asked == asked


@pytest.mark.parametrize(
    "url", ["http://h:99999/d", "http://a..b/d", "http://:1/d", "http://x:y/d"]
)
def test_an_address_that_is_none_is_a_finding(url):
    assert refused(url).rule == "remote"


@pytest.mark.parametrize(
    ("url", "options"),
    [("s3://b/d?versionId=3", {"version_aware": True}), ("s3://b/d", {})],
)
def test_the_version_that_an_s3_address_names_is_the_one_that_is_read(monkeypatch, url, options):
    """Planted: without the option s3fs cuts ?versionId= off and reads the newest version."""
    asked = []

    def system(scheme: str, **given: object) -> None:
        asked.append((scheme, given))
        raise PermissionError("enough")

    monkeypatch.setattr(fsspec, "filesystem", system)
    refused(url)
    assert asked == [("s3", {"skip_instance_cache": True, **options})]


def test_no_server_is_a_finding():
    assert refused("http://127.0.0.1:1/d.jsonl").rule == "remote"


def test_a_scheme_whose_library_is_absent_names_it(monkeypatch):
    def absent(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "filesystem", absent)
    assert refused("s3://bucket/d").message == "cannot be read: Install s3fs to access S3"


def test_a_fault_of_our_own_is_no_finding(monkeypatch):
    """Planted: an error that no network library raises."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(fsspec, "filesystem", broken)
    with pytest.raises(KeyError):
        get("s3://bucket/d")


def test_a_changed_file_in_the_store_is_refused(server):
    path = get(server.url)
    assert isinstance(path, Path)
    path.chmod(0o644)
    path.write_bytes(b"other")
    found = get(server.url)
    assert isinstance(found, Finding)
    assert (found.rule, found.file) == ("store-differs", str(path))


def test_the_module_loads_no_network_library(root):
    code = "import sys, hashtune.store.remote; sys.exit('fsspec' in sys.modules)"
    command = [sys.executable, "-c", code]
    env = {"PYTHONPATH": str(root / "src")}
    assert subprocess.run(command, env=env, check=False).returncode == 0
    assert remote.SECONDS_WITHOUT_A_BYTE == 60
