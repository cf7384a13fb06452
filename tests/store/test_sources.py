"""The other sources: a fake hub on this machine, a pinned directory, a seed."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.errors import InputError
from hashtune.store.manifest import Source, tree_sha256, used_files
from hashtune.store.sources import fetch
from hashtune.store.synthetic import build_synthetic
from hashtune.writers import sha256_file

COMMIT = "c" * 40


def said(_: str) -> None:
    pass


def tree_of(directory: Path) -> str:
    return tree_sha256({name: sha256_file(directory / name) for name in used_files(directory)})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with things beside it that must not be taken."""
    directory = tmp_path_factory.mktemp("base")
    build_synthetic(directory, seed=0)
    (directory / "pytorch_model.bin").write_bytes(b"pickle")
    (directory / "modeling_tiny.py").write_bytes(b"raise SystemExit")
    return directory


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


class FakeHub(ThreadingHTTPServer):
    """Speaks what snapshot_download needs: the tree of a commit, HEAD and GET of a file."""

    def __init__(self, base: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {path.name: path.read_bytes() for path in sorted(base.iterdir())}
        self.asked: list[str] = []
        self.refuse: tuple[int, str] | None = None


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        if self.server.refuse:
            self.reply(self.server.refuse[0], b"", {"X-Error-Code": self.server.refuse[1]}, body)
        elif path == f"/api/models/me/tiny/tree/{COMMIT}":
            tree = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "oid": hashlib.sha1(data).hexdigest(),
                }
                for name, data in self.server.files.items()
            ]
            self.reply(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body)
        else:
            data = self.server.files[path.removeprefix(f"/me/tiny/resolve/{COMMIT}/")]
            etag = f'"{hashlib.sha1(data).hexdigest()}"'
            self.reply(200, data, {"ETag": etag, "X-Repo-Commit": COMMIT}, body)

    def reply(self, code: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)


def use_endpoint(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """What HF_ENDPOINT would do, had huggingface_hub not read it at import."""
    from huggingface_hub import constants

    url = f"http://127.0.0.1:{port}"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", url)


@pytest.fixture
def hub(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    from huggingface_hub import constants

    server = FakeHub(base)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    use_endpoint(monkeypatch, server.server_port)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def hub_source(*, revision: str = COMMIT, sha256: str | None = None) -> Source:
    return Source(kind="hub", repo="me/tiny", revision=revision, file=None, sha256=sha256)


def refused(source: Source, out: Path) -> tuple[str, str]:
    with pytest.raises(InputError) as error:
        fetch(source, out, keep=out.parent, say=said)
    (finding,) = error.value.findings
    return finding.rule, f"{finding.message} {finding.fix}"


def test_hub_brings_the_commit_and_never_pickle_or_code(
    hub: FakeHub, base: Path, out: Path
) -> None:
    fetch(hub_source(sha256=tree_of(base)), out, keep=out.parent, say=said)
    assert sorted(path.name for path in out.iterdir()) == used_files(base)
    assert (out / "model.safetensors").read_bytes() == (base / "model.safetensors").read_bytes()
    assert not [path for path in hub.asked if path.endswith((".bin", ".py"))]


def test_hub_cache_serves_offline(
    hub: FakeHub, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    fetch(hub_source(), out, keep=tmp_path, say=said)
    hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "again").mkdir()
    fetch(hub_source(), tmp_path / "again", keep=tmp_path, say=said)
    assert hub.asked == []
    assert tree_of(tmp_path / "again") == tree_of(out)


def test_hub_with_another_tree_is_refused(hub: FakeHub, base: Path, out: Path) -> None:
    rule, text = refused(hub_source(sha256="0" * 64), out)
    assert rule == "tree-differs" and tree_of(base) in text


def test_hub_refuses_a_branch_before_it_asks(hub: FakeHub, out: Path) -> None:
    rule, text = refused(hub_source(revision="main"), out)
    assert rule == "unpinned" and "a branch or tag can move" in text
    assert hub.asked == []


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (403, "GatedRepo", "is gated accept its terms at https://huggingface.co/me/tiny"),
        (401, "RepoNotFound", "does not exist or is private"),
        (404, "RevisionNotFound", f"has no commit {COMMIT}"),
    ],
)
def test_hub_refusals_are_findings(
    hub: FakeHub, out: Path, code: int, name: str, words: str
) -> None:
    hub.refuse = (code, name)
    rule, text = refused(hub_source(), out)
    assert rule == "hub" and words in text


def test_hub_out_of_reach_is_a_finding(
    hub: FakeHub, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    use_endpoint(monkeypatch, 1)  # nobody listens there
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    rule, text = refused(hub_source(), out)
    assert rule == "hub" and "cannot be reached" in text
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    rule, text = refused(hub_source(), out)
    assert rule == "hub" and "HF_HUB_OFFLINE" in text


def test_hub_with_a_bad_name(hub: FakeHub, out: Path) -> None:
    source = Source(kind="hub", repo="a/b/c", revision=COMMIT, file=None, sha256=None)
    assert refused(source, out)[0] == "hub"


def path_source(repo: Path | str, sha256: str | None) -> Source:
    return Source(kind="path", repo=str(repo), revision="", file=None, sha256=sha256)


def test_path_is_copied_when_its_tree_is_the_pinned_one(
    base: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base.parent)
    fetch(path_source(base.name, tree_of(base)), out, keep=out.parent, say=said)
    assert sorted(path.name for path in out.iterdir()) == used_files(base)


def test_one_changed_byte_in_the_path_is_refused(base: Path, tmp_path: Path, out: Path) -> None:
    pin = tree_of(base)
    build_synthetic(tmp_path / "copy", seed=0)
    config = tmp_path / "copy" / "config.json"
    config.write_bytes(config.read_bytes().replace(b'"silu"', b'"gelu"'))
    rule, text = refused(path_source(tmp_path / "copy", pin), out)
    assert rule == "tree-differs"
    assert tree_of(tmp_path / "copy") in text and pin in text


def test_path_without_pin_names_the_hash(base: Path, out: Path) -> None:
    rule, text = refused(path_source(base, None), out)
    assert rule == "tree-differs" and tree_of(base) in text and "there is no pin" in text


def test_path_that_is_no_directory(out: Path) -> None:
    assert refused(path_source("/nowhere/at/all", "0" * 64), out)[0] == "no-directory"


@pytest.mark.parametrize("revision", ["", "main", "-1", "1.5"])
def test_synthetic_needs_a_seed(revision: str, out: Path) -> None:
    source = Source(kind="synthetic", repo="tiny", revision=revision, file=None, sha256=None)
    assert refused(source, out)[0] == "no-seed"
