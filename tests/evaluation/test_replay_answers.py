"""Replay prompts and which of the base's answers are kept."""

import json

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.generate import Answer
from hashtune.evaluation.replay import ReplayPrompt, keep_answers, load_prompts
from hashtune.records import Dropped
from hashtune.writers import sha256_bytes

USER = {"role": "user", "content": "Hi"}


def write(root, rows):
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (root / "p.jsonl").write_bytes(data)
    return sha256_bytes(data)


def test_every_prompt_is_kept_or_dropped_with_a_reason():
    prompts = [ReplayPrompt(f"p{i}", i + 1, [USER]) for i in range(4)]
    answers = [
        Answer(" Hello.", 3, True),
        Answer("Once upon a", 64, False),
        Answer(" \n\u200b", 2, True),
        Answer("", 64, False),
    ]
    kept, dropped = keep_answers(prompts, answers)
    said = {"role": "assistant", "content": " Hello."}
    assert kept == [{"id": "p0", "messages": [USER, said]}]
    assert dropped == [
        Dropped("p1", "replay", 2, "unfinished", "64 tokens"),
        Dropped("p2", "replay", 3, "blank", "2 tokens"),
        Dropped("p3", "replay", 4, "unfinished", "64 tokens"),
    ]


def test_prompts_are_read_with_their_lines(tmp_path):
    pin = write(tmp_path, [{"id": "a", "messages": [USER]}, {"id": "b", "messages": [USER]}])
    assert load_prompts("p.jsonl", sha256=pin, root=tmp_path) == [
        ReplayPrompt("a", 1, [USER]),
        ReplayPrompt("b", 2, [USER]),
    ]


def test_all_broken_prompts_are_named(tmp_path):
    said = {"role": "assistant", "content": "x"}
    rows = [
        {"id": "a", "messages": [USER, said]},
        {"id": "a", "messages": []},
        {"id": "c", "messages": [{"role": "user", "content": None}]},
        {"id": "d"},
    ]
    with pytest.raises(InputError) as caught:
        load_prompts("p.jsonl", sha256=write(tmp_path, rows), root=tmp_path)
    found = [(f.line, f.field) for f in caught.value.findings]
    assert found == [
        (2, "id"),
        (1, "messages[2].role"),
        (2, "messages"),
        (3, "messages[0].content"),
        (4, "messages"),
    ]


def test_unpinned_prompts_are_refused(tmp_path):
    pin = write(tmp_path, [{"id": "a", "messages": [USER]}])
    with pytest.raises(InputError, match=r"data\.replay\.sha256"):
        load_prompts("p.jsonl", sha256=None, root=tmp_path)
    (tmp_path / "p.jsonl").write_text('{"id": "b", "messages": []}\n')
    with pytest.raises(InputError, match=pin):
        load_prompts("p.jsonl", sha256=pin, root=tmp_path)


def test_prompts_of_text_parts_are_their_text(tmp_path):
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    rows = [{"id": "a", "messages": [{"role": "user", "content": parts}]}]
    (prompt,) = load_prompts("p.jsonl", sha256=write(tmp_path, rows), root=tmp_path)
    assert prompt.messages == [USER]
