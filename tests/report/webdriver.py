"""A browser by the WebDriver protocol (W3C), as far as the tests of the report need it.

Not selenium: it brings trio, which httpx then imports in the stages' own processes, so that a
library of the tests would change what a stage does.
"""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
KEYS = {"tab": "\ue004", "delete": "\ue017", "control": "\ue009", "release": "\ue000"}
OPEN = build_opener(ProxyHandler({}))


class Browser:
    """One session; every call is a request to the driver."""

    def __init__(self, address: str, session: str) -> None:
        self.at = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        call(f"{self.at}/url", {"url": url})

    def run(self, script: str) -> Any:
        """What the script returns."""
        return call(f"{self.at}/execute/sync", {"script": script, "args": []})

    def type(self, text: str) -> None:
        """Type into what has the focus; keys of KEYS by their characters."""
        found = call(f"{self.at}/element/active")
        [number] = found.values()
        call(f"{self.at}/element/{number}/value", {"text": text})

    def log(self) -> list[dict[str, Any]]:
        """The console since the last call."""
        return list(call(f"{self.at}/se/log", {"type": "browser"}))

    def devtools(self, command: str, **parameters: Any) -> None:
        call(f"{self.at}/goog/cdp/execute", {"cmd": command, "params": parameters})


@contextmanager
def browser(driver: str, chromium: str, profile: Path) -> Iterator[Browser]:
    """Start the driver and a browser, and end both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={profile}"]}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([driver, f"--port={port}"], **quiet) as process:
        try:
            wait(address)
            session = call(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
            try:
                yield Browser(address, session["sessionId"])
            finally:
                call(f"{address}/session/{session['sessionId']}", method="DELETE")
        finally:
            process.terminate()


def wait(address: str, seconds: float = 60.0) -> None:
    """Until the driver answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            call(f"{address}/status")
            return
        except OSError:
            assert time.monotonic() < end, "chromedriver does not answer"
            time.sleep(0.05)


def call(url: str, body: dict[str, Any] | None = None, *, method: str | None = None) -> Any:
    """A request and the `value` of its answer; HTTPError where the driver refuses."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with OPEN.open(Request(url, data, headers, method=method), timeout=60) as answer:
        return json.load(answer)["value"]
