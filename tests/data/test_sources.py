"""Paths stay inside the project, hashes come before parsing, policies decide about bad rows."""

import hashlib
import json

import pytest

from hashtune.data.cleaning import Policy
from hashtune.data.leakage import Item
from hashtune.data.sources import (
    DataFile,
    check_pin,
    load,
    load_questions,
    resolve,
    unique_names,
)
from hashtune.errors import KEPT, Finding, InputError

STOP = Policy("error", 0.0)


def declare(path, root, *, sha256=None, schema="messages") -> DataFile:
    pin = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    uri = path.relative_to(root).as_posix()
    return DataFile("s", uri, pin, schema, "data.sources[0]")


def write(root, *rows, name="d.jsonl"):
    path = root / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_resolve_accepts_files_inside(tmp_path):
    path = write(tmp_path)
    (tmp_path / "link.jsonl").symlink_to(path)
    assert resolve("d.jsonl", tmp_path, field="f") == path
    assert resolve("link.jsonl", tmp_path, field="f") == tmp_path / "link.jsonl"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("../out.jsonl", "is not relative to the project root or leaves it"),
        ("sub/../d.jsonl", "is not relative to the project root or leaves it"),
        ("/etc/passwd", "is not relative to the project root or leaves it"),
        ("escape.jsonl", "is a link that leads outside the project root"),
        ("folder/out.jsonl", "is a link that leads outside the project root"),
        ("loop", "does not exist"),
        ("sub", "is a folder"),
        ("nodir/x.jsonl", "does not exist"),
        ("e.jsonl", "does not exist"),
        ("s3://bucket/d.jsonl", "is a URL"),
        ("", "is no path"),
        ("a\0b", "is no path"),
    ],
)
def test_resolve_refuses(tmp_path, uri, message):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    write(root)
    outside = write(tmp_path, name="out.jsonl")
    (root / "escape.jsonl").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    found = resolve(uri, root, field="data.eval.uri")
    assert isinstance(found, Finding)
    assert found.message == f"{uri!r} {message}"
    assert found.field == "data.eval.uri"


def test_missing_file_says_how_to_get_it(tmp_path):
    write(tmp_path)
    typo = resolve("e.jsonl", tmp_path, field="f")
    assert isinstance(typo, Finding)
    assert typo.fix == "did you mean 'd.jsonl'?"
    (tmp_path / "big.jsonl.dvc").write_text("outs: []\n")
    pulled = resolve("big.jsonl", tmp_path, field="f")
    assert isinstance(pulled, Finding)
    assert pulled.fix == "dvc pull big.jsonl.dvc"
    (tmp_path / "data/mine").mkdir(parents=True)
    (tmp_path / "data/mine/big.jsonl.dvc").write_text("outs: []\n")
    (tmp_path / "data/all.dvc").write_text("outs: []\n")
    for uri, file in (
        ("data/mine/big.jsonl", "data/mine/big.jsonl.dvc"),
        ("data/all/deep/d.jsonl", "data/all.dvc"),  # a folder that DVC keeps whole
    ):
        pulled = resolve(uri, tmp_path, field="f")
        assert isinstance(pulled, Finding)
        assert pulled.fix == f"dvc pull {file}"


def test_pin(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"abc")
    right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    where = {"field": "data.eval.sha256", "shown": "d.jsonl"}
    assert check_pin(path, sha256=right, **where) is None
    wrong = check_pin(path, sha256="0" * 64, **where)
    assert wrong is not None
    assert str(wrong).startswith(
        f"d.jsonl: data.eval.sha256: sha256 is {right}, pinned is {'0' * 64} [pin]"
    )
    absent = check_pin(path, sha256=None, **where)
    assert absent is not None
    assert (absent.rule, absent.fix) == ("unpinned", f"set data.eval.sha256 to '{right}'")
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    pointer = check_pin(path, sha256=right, **where)
    assert pointer is not None
    assert pointer.fix == "this is a Git LFS pointer: git lfs pull"


def test_wrong_pin_is_not_parsed(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"{broken")
    assert [
        f.rule for f in load(declare(path, tmp_path, sha256="0" * 64), tmp_path, STOP).findings
    ] == ["pin"]
    assert [f.rule for f in load(declare(path, tmp_path), tmp_path, STOP).findings] == [
        "cut-off-line"
    ]


def test_empty_file_is_refused(tmp_path):
    [finding] = load(declare(write(tmp_path), tmp_path), tmp_path, STOP).findings
    assert str(finding) == "d.jsonl: data.sources[0]: 0 rows [no-rows]"


def test_load_counts_rows_and_keeps_file_faults_under_any_policy(tmp_path):
    path = write(tmp_path, {"instruction": "i", "output": "o"}, {"instruction": "i"})
    file = declare(path, tmp_path, schema="instruction")
    assert [f.line for f in load(file, tmp_path, STOP).findings] == [2]
    loaded = load(file, tmp_path, Policy("drop", 0.5))
    assert (loaded.rows, len(loaded.conversations), loaded.findings) == (2, 1, [])
    [dropped] = loaded.dropped
    assert (dropped.source, dropped.line, dropped.reason, dropped.detail) == (
        "s",
        2,
        "missing",
        "output",
    )
    path.write_bytes(path.read_bytes() + b"{'a': 1}\n")
    damaged = load(declare(path, tmp_path, schema="instruction"), tmp_path, Policy("drop", 1.0))
    assert [(f.rule, f.line) for f in damaged.findings] == [("json", 3)]


def test_findings_of_a_damaged_file_beyond_the_first_are_counted(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("{x}\n" * (KEPT + 7))
    loaded = load(declare(path, tmp_path), tmp_path, STOP)
    assert [finding.line for finding in loaded.findings] == list(range(1, KEPT + 1))
    assert loaded.more == {"json": 7}
    text = str(InputError(loaded.findings, loaded.more))
    assert text.splitlines()[0] == f"{KEPT + 7} findings:"
    assert text.splitlines()[-1] == f"  and {KEPT + 7 - 20} more of [json]"


def test_rows_go_to_the_sink_one_by_one(tmp_path):
    rows = [{"messages": [{"role": "assistant", "content": text}]} for text in ("a", " ", "b")]
    path = write(tmp_path, *rows)
    told = []

    class Sink:
        def keep(self, row):
            told.append(row.line)

        def drop(self, row):
            told.append(row.reason)

    loaded = load(declare(path, tmp_path), tmp_path, Policy("drop", 0.5), Sink())
    assert told == [1, "blank", 3]
    assert (loaded.rows, loaded.conversations, loaded.dropped) == (3, [], [])


def test_questions_of_a_suite(tmp_path):
    path = write(tmp_path, {"prompt": "p"}, {"question": "q"}, {"text": "t"}, {"prompt": None})
    items, findings = load_questions(declare(path, tmp_path), tmp_path)
    assert items == [Item("d.jsonl", 1, ["p"]), Item("d.jsonl", 2, ["q"])]
    assert [str(finding) for finding in findings] == [
        "d.jsonl:3: prompt or question: missing [missing]",
        "d.jsonl:4: prompt: null, expected string [null]",
    ]


def test_names_are_unique():
    def named(name, index):
        return DataFile(name, "d", None, "messages", f"data.sources[{index}]")

    files = [named("a", 0), named("a", 1), named("eval", 2), named("b", 3)]
    assert [str(finding) for finding in unique_names(files, reserved={"eval"})] == [
        "data.sources[1].name: name 'a' is taken [name-taken]",
        "data.sources[2].name: name 'eval' is taken [name-taken]",
    ]
