"""Declarations of a data file: where it is said to lie, and the rule under which it is refused.

An address goes through the spec's pins and, since `dvc repro -s prepare` skips those, through
prepare's own reading too. One with a secret must not be printed by either.
"""

import contextlib
import io
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import fsspec

from hashtune import writers
from hashtune.data.cleaning import Policy
from hashtune.data.sources import DataFile, load
from hashtune.spec.load import read_params, validate
from hashtune.spec.pins import check_pins
from hashtune.stages import prepare
from hashtune.store import remote

ROOT = Path(__file__).resolve().parents[2]
DATA = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'
PIN = writers.sha256_bytes(DATA)
SECRET = "hunter2"
NAME = "d.jsonl"


@dataclass(frozen=True, slots=True)
class Address:
    """A declared address with its pin, and the rules that the spec and prepare must refuse it by
    ("" where they must take it)."""

    uri: str
    spec: str
    prepare: str
    sha256: str = PIN


def address(random: Random, folder: Path) -> Address:
    """A random one; `folder` holds the project (see `lay_out`)."""
    deep = "/".join(["x"] * random.randint(1, 4))
    up = "/".join([".."] * random.randint(1, 6))
    scheme = random.choice(("file", "http", "ftp", "memory", "github", "HTTPS", "data", "local"))
    user = random.choice(("me", f"me:{SECRET}", f":{SECRET}", SECRET))
    host = random.choice(("h.example", "[::1]", "h.example:1"))
    known = random.choice(("https", "s3", "http"))
    signed = random.choice(("X-Amz-Signature", "sig", "token", "access_token", "api-key"))
    port = random.choice((0, -1, 65536, "x", "1:1"))
    label = random.choice(("..", "a..b", "x" * 64, "."))
    wrong = writers.sha256_bytes(random.randbytes(4))
    return random.choice(
        (
            Address(NAME, "", ""),
            Address(f"./{NAME}", "", ""),
            Address(f"sub//{NAME}", "", ""),
            Address("inside.jsonl", "", ""),
            Address(NAME, "pin-differs", "pin", wrong),
            Address(f"{up}/{NAME}", "outside-root", "outside"),
            Address(f"sub/../../{NAME}", "outside-root", "outside"),
            Address(str(folder.parent / NAME), "outside-root", "outside"),
            Address("/etc/hostname", "outside-root", "outside"),
            Address("outside.jsonl", "outside-root", "outside"),
            Address(f"away/{NAME}", "outside-root", "outside"),
            Address("loop.jsonl", "no-file", "no-file"),
            Address("hanging.jsonl", "no-file", "no-file"),
            Address("sub", "no-file", "no-file"),
            Address(".", "no-file", "no-file"),
            Address("", "no-file", "no-file"),
            Address(f"{deep}/{NAME}", "no-file", "no-file"),
            Address(f"{NAME}/x", "no-file", "no-file"),
            Address("x" * random.choice((300, 5000)), "no-file", "no-file"),
            Address(f"a\0{NAME}", "no-file", "no-file"),
            Address(f"{NAME}\n", "no-file", "no-file"),
            Address("~/" + NAME, "no-file", "no-file"),
            Address("https:/" + NAME, "no-file", "no-file"),
            Address("C:\\data\\" + NAME, "no-file", "no-file"),
            Address(f"{scheme}://h.example/{NAME}", "outside-root", "outside"),
            Address(f"file://{folder}/{NAME}", "outside-root", "outside"),
            Address(f"https://{user}@{host}/{NAME}", "secret", "secret"),
            Address(f"s3://{user}@bucket/{NAME}", "secret", "secret"),
            Address(f"https://[{user}@x/{NAME}", "secret", "secret"),
            Address(f"{scheme}://{user}@{host}/{NAME}", "secret", "secret"),
            Address(f"{known}://{host}/{NAME}?{signed}={SECRET}", "secret", "secret"),
            Address(f"{known}://{host}/{NAME}?v=1&{signed.upper()}={SECRET}", "secret", "secret"),
            Address(f"https://[x/{NAME}", "address", "address"),
            Address(f"https://h.example:{port}/{NAME}", "address", "address"),
            Address(f"https://{label}/{NAME}", "address", "address"),
            Address(f"https://:443/{NAME}", "address", "address"),
            Address(f"s3://bucket{random.choice(('', '/', '//'))}", "address", "address"),
            Address(f"https://{host}/{NAME}?version=3&token_count=4", "", ""),
            Address(f"https:///{NAME}", "address", "address"),
            Address("s3://", "address", "address"),
            Address(f"https://{host}/{NAME}", "", ""),
            Address(f"s3://bucket/{deep}/{NAME}?versionId=3", "", ""),
            Address(f"https://{host}/a@b/{NAME}", "", ""),
            Address(f"https://{host}/{NAME}", "", "pin", wrong),
            Address(f"s3://bucket/none/{NAME}", "", "remote", wrong),
        )
    )


def lay_out(folder: Path) -> None:
    """A project with files, links out of it, into it, to nothing and to itself."""
    (folder / "sub").mkdir(parents=True)
    for place in (folder, folder / "sub", folder.parent):
        (place / NAME).write_bytes(DATA)
    links = {"inside": NAME, "outside": f"../{NAME}", "hanging": "none", "loop": "loop.jsonl"}
    for name, target in links.items():
        (folder / f"{name}.jsonl").symlink_to(target)
    (folder / "away").symlink_to(folder.parent)


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    """Every scheme is a file system in memory, in which each path holds DATA but those of none/."""

    class Memory:
        def get_file(self, url: str, target: str) -> None:
            if "/none/" in url:
                raise PermissionError(13, "Forbidden")
            Path(target).write_bytes(DATA)

    before = fsspec.filesystem
    fsspec.filesystem = lambda *_arguments, **_options: Memory()
    try:
        yield
    finally:
        fsspec.filesystem = before


def _spec_rules(address: Address, folder: Path, params: Mapping[str, Any]) -> list[Any]:
    source = {**params["data"]["sources"][0], "uri": address.uri, "sha256": address.sha256}
    data = {**params["data"], "sources": [source]}
    spec = validate({**params, "data": data})
    found = check_pins(spec, folder)
    return [finding for finding in found if (finding.field or "").startswith("data.sources[0]")]


def _prepare_rules(address: Address, folder: Path) -> list[Any]:
    field = "data.sources[0]"
    file = prepare._fetched(DataFile("fuzz", address.uri, address.sha256, "messages", field))
    if not isinstance(file, DataFile):
        return [file]
    loaded = load(file, folder, Policy("error", 0.0))
    if not loaded.findings and (loaded.rows, len(loaded.conversations)) != (1, 1):
        raise AssertionError(f"{loaded.rows} rows of 1")
    return loaded.findings


def fuzz_addresses(seed: int, numbers: range, folder: Path) -> list[str]:
    """Failures of these declarations; HASHTUNE_HOME is where fetched files go."""
    project = folder / "addresses/project"
    lay_out(project)
    params = read_params(ROOT / "params.yaml")
    failures = []
    for number in numbers:
        given = address(Random(f"{seed}/address/{number}"), project)
        (remote.home() / "blobs" / PIN).unlink(missing_ok=True)
        said = io.StringIO()
        with no_network(), contextlib.redirect_stdout(said):
            try:
                wrong = list(_wrong(given, project, params, said))
            except Exception:  # noqa: BLE001  the fuzz is the edge: it tells and goes on
                wrong = [traceback.format_exc(limit=-3)]
        failures += [f"{seed}/{number} ({given}): {fault}" for fault in wrong]
    return failures


def _wrong(
    given: Address, project: Path, params: Mapping[str, Any], said: io.StringIO
) -> Iterator[str]:
    in_spec = _spec_rules(given, project, params)
    in_prepare = _prepare_rules(given, project)
    for who, found, rule in (
        ("spec", in_spec, given.spec),
        ("prepare", in_prepare, given.prepare),
    ):
        rules = [finding.rule for finding in found]
        if rules != [rule] * bool(rule):
            yield f"{who} finds {list(map(str, found))}, expected {rule!r}"
        if SECRET in "".join(map(str, found)) + said.getvalue():
            yield f"{who} prints the secret"
