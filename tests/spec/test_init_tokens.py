"""Rows of added tokens in an adapter to continue from: the spec's, in its order, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from hashtune.errors import Finding, InputError
from hashtune.spec.init_adapter import CONFIG, WEIGHTS, init_findings
from hashtune.spec.init_tokens import INDICES, TOKENS, read_rows
from hashtune.spec.schema import InitAdapter, Method
from hashtune.writers import sha256_bytes

FIELD = "tokenizer.added_tokens"
FOLDER = "data/first"
METHOD = Method(
    type="lora",
    variant="lora",
    r=2,
    alpha=4.0,
    dropout=0.0,
    targets="all-linear",
    virtual_tokens=None,
)
PIN = InitAdapter(path=FOLDER, sha256=sha256_bytes(b"weights"))
ADDED = ["<|b|>", "<|end|>", "<|a|>"]  # "<|end|>" is in the base's vocabulary
ROWS = [{"id": 512, "text": "<|b|>"}, {"id": 2, "text": "<|end|>"}, {"id": 513, "text": "<|a|>"}]
IDS = [2, 512, 513]  # PEFT's order


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def write(root: Path, *, indices: object = None, rows: object = ROWS) -> None:
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(b"weights")
    config: dict[str, Any] = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    config[INDICES] = {"embed_tokens": IDS, "lm_head": IDS} if indices is None else indices
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    text = rows if isinstance(rows, str) else json.dumps(rows)
    (folder / TOKENS).write_text(text, encoding="utf-8")


def found(root: Path, added: list[str] = ADDED) -> list[Finding]:
    return init_findings(PIN, METHOD, added, root)


def test_the_same_tokens_in_the_same_order(root: Path) -> None:
    assert found(root) == []
    assert list(read_rows(root, FOLDER).items()) == [("<|b|>", 512), ("<|end|>", 2), ("<|a|>", 513)]


@pytest.mark.parametrize(
    "added", [ADDED[::-1], ADDED[:2], [*ADDED, "<|c|>"], ["<|b|>", "<|end|>", "<|A|>"]]
)
def test_other_tokens_or_another_order_are_named(added: list[str], root: Path) -> None:
    """The ids of a reversed list are the same three, so only the texts tell."""
    [finding] = found(root, added)
    assert (finding.rule, finding.field) == ("init-adapter", FIELD)
    assert finding.message == f"is {added}, and the adapter to continue from has rows of {ADDED}"
    assert finding.fix.startswith(f"the same texts in the same order as in {FOLDER}/{TOKENS}")


def test_rows_on_one_side_only(root: Path) -> None:
    [finding] = found(root, [])
    assert (finding.rule, finding.field) == ("init-adapter", FIELD)
    assert "is [], and the adapter to continue from has trained rows" in finding.message
    for nothing in (False, [], {}):
        write(root, indices=nothing)
        assert found(root, []) == []
        [finding] = found(root)
        assert (finding.rule, finding.field) == ("init-adapter", FIELD)
        assert finding.message.startswith("adds 3 tokens, and the adapter to continue from has no")
        assert finding.fix == f"{FIELD}=[], or an adapter that was trained with them"


@pytest.mark.parametrize(
    "indices", [{"embed_tokens": [2, 512]}, {"embed_tokens": IDS, "lm_head": [2, 512, 514]}, IDS]
)
def test_a_configuration_with_other_ids(indices: object, root: Path) -> None:
    write(root, indices=indices)
    [finding] = found(root)
    assert (finding.file, finding.field) == (f"{FOLDER}/{CONFIG}", INDICES)
    assert finding.message.endswith(f"beside it has the ids {IDS}")


def test_a_file_of_texts_that_is_missing_or_outside(root: Path) -> None:
    (root / FOLDER / TOKENS).rename(root.parent / "outside.json")
    [finding] = found(root)
    assert (finding.rule, finding.file) == ("init-adapter", f"{FOLDER}/{TOKENS}")
    assert finding.message.startswith("does not exist") and "in the order" in finding.fix
    (root / FOLDER / TOKENS).symlink_to(root.parent / "outside.json")
    assert [finding.rule for finding in found(root)] == ["outside-root"]


@pytest.mark.parametrize(
    "rows",
    [
        "{",
        "{}",
        [1],
        [{"id": 512}],
        [{"id": 512, "text": 3}],
        [{"id": True, "text": "a"}],
        [{"id": "512", "text": "a"}],
        [{"id": 512, "text": ["a"]}],
        [{"id": 512, "text": "a"}, {"id": 513, "text": "a"}],
        [{"id": 512, "text": "a"}, {"id": 512, "text": "b"}],
    ],
    ids=str,
)
def test_a_file_of_texts_that_says_something_else(rows: object, root: Path) -> None:
    write(root, rows=rows)
    with pytest.raises(InputError) as caught:
        read_rows(root, FOLDER)
    [finding] = caught.value.findings
    assert (finding.rule, finding.file) == ("init-adapter", f"{FOLDER}/{TOKENS}")
    assert found(root) == [finding]
