"""What bench/two_clones.py calls a difference: the first one in the order of the pipeline."""

import pytest

LOCK = """schema: '2.0'
stages:
  late:
    cmd: echo
    outs:
    - path: build/late.jsonl
      md5: {late}
  early:
    cmd: echo
    outs:
    - path: build/early
      md5: {early}
"""


def built(folder, *, early="a\n", late="b\n", lock=LOCK):
    (folder / "build/early").mkdir(parents=True)
    (folder / "build/early/rows.jsonl").write_text(early)
    (folder / "build/late.jsonl").write_text(late)
    (folder / "dvc.yaml").write_text("stages: {early: {cmd: echo}, late: {cmd: echo}}\n")
    (folder / "dvc.lock").write_text(lock.format(early=early.strip(), late=late.strip()))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        (
            {"early": "x\n", "late": "y\n"},
            "build/early: rows.jsonl: line 1: 'x', recorded as 'a'",
        ),
        ({"late": "y\n"}, "build/late.jsonl: late.jsonl: line 1: 'y', recorded as 'b'"),
        (
            {"lock": LOCK.replace("echo", "true", 1)},
            "dvc.lock: byte 39 differs (166 bytes, recorded with 166)",
        ),
    ],
)
def test_the_first_difference_is_named(script, tmp_path, changes, words):
    one, other = built(tmp_path / "one"), built(tmp_path / "other", **changes)
    assert script("two_clones").difference(one, other) == words
