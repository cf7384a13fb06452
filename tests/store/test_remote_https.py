"""https:// with real TLS: a server of our own with a certificate that a process may trust."""

import datetime
import hashlib
import ipaddress
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DATA = b'{"instruction":"a","output":"x"}\n' * 1000
PIN = hashlib.sha256(DATA).hexdigest()
REDIRECTS = {
    "/moved": "/d.jsonl",
    "/loop": "/loop",
    "/file": "file:///etc/hostname",
    "/none": "https://127.0.0.1:99999/d.jsonl",
}
# fetches each URL twice in one fresh process; "" for a file that is as pinned
FETCH = """
import hashlib, json, sys
from pathlib import Path
from hashtune.store.blobs import home
from hashtune.store.remote import fetch
def told(url):
    found = fetch(url, sys.argv[1], field="data.test", say=lambda _: None)
    left = [p.name for p in (home() / "tmp").iterdir()]
    assert left == [], left
    if not isinstance(found, Path):
        return f"{found.rule}: {found.message}"
    return "" if hashlib.sha256(found.read_bytes()).hexdigest() == sys.argv[1] else "other bytes"
print(json.dumps([told(url) for url in sys.argv[2:]]))
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        target = REDIRECTS.get(self.path)
        self.send_response(302 if target else 200)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Length", "0" if target else str(len(DATA)))
        self.end_headers()
        self.wfile.write(b"" if target else DATA)

    def log_message(self, *_: object) -> None:
        pass


def certificate(folder: Path) -> Path:
    """A key and a certificate of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    path = folder / "server.pem"
    path.write_bytes(key.private_bytes(pem, *form) + made.public_bytes(pem))
    return path


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path)


@pytest.fixture
def server(pem: Path) -> Iterator[ThreadingHTTPServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []  # type: ignore[attr-defined]
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def told(server: ThreadingHTTPServer, tmp_path: Path, root: Path):
    def run(*paths: str, home: str = "home", **environment: str) -> list[str]:
        urls = [f"https://127.0.0.1:{server.server_address[1]}{path}" for path in paths]
        done = subprocess.run(
            [sys.executable, "-c", FETCH, PIN, *urls],
            env={
                "PYTHONPATH": str(root / "src"),
                "HASHTUNE_HOME": str(tmp_path / home),
                "NO_PROXY": "127.0.0.1",
                **environment,
            },
            capture_output=True,
            check=True,
            text=True,
        )
        found: list[str] = json.loads(done.stdout)
        return found

    return run


def test_a_trusted_server_gives_the_file_and_the_second_run_asks_nobody(told, server, pem):
    trust = {"SSL_CERT_FILE": str(pem)}
    assert told("/d.jsonl", **trust) == [""]
    assert server.asked == ["/d.jsonl"]
    assert told("/d.jsonl", "/elsewhere", **trust) == ["", ""]  # the pin says which bytes
    assert server.asked == ["/d.jsonl"]


def test_a_redirect_is_followed_where_it_leads_somewhere(told, server, pem):
    trust = {"SSL_CERT_FILE": str(pem)}
    loop, file, none = told("/loop", "/file", "/none", **trust)
    assert loop.startswith("remote: cannot be fetched: TooManyRedirects")
    assert file.startswith("remote: cannot be fetched: ")
    assert none.startswith("remote: cannot be fetched: ")
    assert told("/moved", **trust) == [""]
    assert server.asked[-2:] == ["/moved", "/d.jsonl"]


def test_a_server_that_nobody_vouches_for_is_refused(told, server):
    """Planted: the same server without SSL_CERT_FILE; a file with the right bytes is not taken."""
    [found] = told("/d.jsonl")
    assert found.startswith("remote: cannot be fetched: ClientConnectorCertificateError")
    assert server.asked == []
