"""The adapter to continue from: place, hash and configuration, each fault by name; no model."""

import json
from pathlib import Path
from typing import Any

import pytest

from hashtune.spec.init_adapter import CONFIG, WEIGHTS, init_findings
from hashtune.spec.schema import InitAdapter, Method
from hashtune.writers import sha256_bytes

DATA = b"the weights"
PIN = InitAdapter(path="data/first", sha256=sha256_bytes(DATA))
METHOD = Method(
    type="lora",
    variant="lora",
    r=2,
    alpha=4.0,
    dropout=0.0,
    targets="all-linear",
    virtual_tokens=None,
)
SAME: dict[str, Any] = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
FIELD = "base_model.init_adapter"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    write(project / "data/first")
    write(tmp_path / "outside")
    return project


def write(folder: Path, config: str = json.dumps(SAME)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(DATA)
    (folder / CONFIG).write_text(config, encoding="utf-8")


def found(root: Path, **changes: str) -> list[tuple[str, str | None]]:
    pin = PIN.model_copy(update=changes)
    return [(finding.rule, finding.field) for finding in init_findings(pin, METHOD, [], root)]


def test_a_pinned_folder_that_says_what_method_says(root: Path) -> None:
    assert found(root) == []
    write(root / "data/first", json.dumps(SAME | {"lora_dropout": 0.1, "init_lora_weights": False}))
    assert found(root) == []


@pytest.mark.parametrize("path", ["../outside", "data/../../outside", "/etc", "link"])
def test_a_path_that_leaves_the_project(path: str, root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    assert found(root, path=path) == [("outside-root", FIELD)] * 2


def test_other_places(root: Path) -> None:
    assert found(root, path="https://me:word@x/first") == [("outside-root", FIELD)]
    assert found(root, path="data/none") == [("no-file", FIELD)] * 2
    assert found(root, path="a\0b") == [("no-file", FIELD)] * 2
    (root / "data/first" / CONFIG).unlink()
    assert found(root) == [("no-file", FIELD)]


def test_another_hash_names_both(root: Path) -> None:
    [finding] = init_findings(PIN.model_copy(update={"sha256": "0" * 64}), METHOD, [], root)
    assert (finding.rule, finding.field) == ("pin-differs", f"{FIELD}.sha256")
    assert PIN.sha256 in finding.message
    assert "0" * 64 in finding.message


@pytest.mark.parametrize("path", ["", " "])
def test_an_empty_path_is_called_empty(path: str, root: Path) -> None:
    [finding] = init_findings(PIN.model_copy(update={"path": path}), METHOD, [], root)
    assert (finding.rule, finding.field, finding.message) == (
        "no-file",
        f"{FIELD}.path",
        "is empty",
    )


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_a_method_without_lora_is_named_by_its_type(kind: str, root: Path) -> None:
    fields = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets"))
    method = METHOD.model_copy(update={**fields, "type": kind, "virtual_tokens": 4})
    [finding] = init_findings(PIN, method, [], root)
    assert (finding.rule, finding.field) == ("contradiction", FIELD)
    assert f"method.type {kind}" in finding.message
    assert finding.fix == "set it to null, or method=lora"


def test_every_difference_of_the_configuration_in_one_run(root: Path) -> None:
    other = {
        "peft_type": "LORA",
        "lora_alpha": 16,
        "use_dora": True,
        "alpha_pattern": {"q_proj": 32},
        "init_lora_weights": "pissa",
        "bias": "all",
    }
    write(root / "data/first", json.dumps(other))
    told = [(f.file, f.field, f.message) for f in init_findings(PIN, METHOD, [], root)]
    file, has = f"data/first/{CONFIG}", "the adapter to continue from has"
    assert told == [
        ("params.yaml", "method.r", f"{has} r 8, not 2"),  # what PEFT takes where r is missing
        ("params.yaml", "method.alpha", f"{has} lora_alpha 16, not 4.0"),
        ("params.yaml", "method.variant", f"{has} use_dora True, not False"),
        (file, "alpha_pattern", "sets alpha_pattern to {'q_proj': 32}, which `method` cannot say"),
        (file, "bias", "sets bias to 'all', which `method` cannot say"),
        (
            *(file, "init_lora_weights"),
            "sets init_lora_weights to 'pissa', which `method` cannot say",
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is no JSON: column"), ("[]", "no JSON object")]
)
def test_a_broken_configuration(text: str, message: str, root: Path) -> None:
    write(root / "data/first", text)
    [finding] = init_findings(PIN, METHOD, [], root)
    assert (finding.rule, finding.file) == ("init-adapter", f"data/first/{CONFIG}")
    assert message in finding.message


def test_another_kind_of_adapter(root: Path) -> None:
    """Its other keys mean something else: only the kind is named."""
    for kind in ("IA3", "PROMPT_TUNING", None):
        other = {"peft_type": kind, "num_virtual_tokens": 4}
        write(root / "data/first", json.dumps(other))
        [finding] = init_findings(PIN, METHOD, [], root)
        assert (finding.rule, finding.field) == ("init-adapter", FIELD)
        assert finding.message == f"the adapter to continue from has peft_type {kind!r}, not 'LORA'"
