"""release: can anyone rebuild, load and trust it?

Writes build/release/entry.json always, build/release/adapter/ (weights, tokenizer, template, stops,
model card) only when the verdict is pass: the `artifacts:` path of a rejected version is empty.
"""

import shutil
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.errors import Finding, InputError
from hashtune.lineage.card import model_card
from hashtune.lineage.entry import build_entry, hash_files
from hashtune.lineage.released import seal
from hashtune.spec.methods import FULL, FULL_FILES
from hashtune.store.added_tokens import write_tokenizer
from hashtune.store.contents import template_text
from hashtune.store.loader import load_tokenizer, materialise
from hashtune.store.manifest import Manifest, read_manifest

OUT = Path("build/release")
MANIFEST = Path("build/base/manifest.json")
ADAPTER = Path("build/train/adapter")
DATA = [Path("build/prepare") / f"{part}.parquet" for part in ("train", "eval", "test")]


def run() -> None:
    """Write the entry; on pass also the loadable adapter."""
    spec = frame.read_spec("release")
    entry = build_entry(
        name=spec.release.name,
        spec=writers.read_json(Path("build/spec/spec.json")),
        manifest=writers.read_json(MANIFEST),
        gate=writers.read_json(Path("reports/gate.json")),
        train=writers.read_json(Path("reports/train.json")),
        hashes={
            "code": hash_files([Path("build/code")]),
            "data": hash_files([*DATA, Path("build/pack")]),
            "adapter": hash_files([ADAPTER]),
        },
    )
    passed = entry["verdict"] == "pass"
    with writers.staged_directory(OUT) as folder:
        writers.write_json(folder / "entry.json", entry)
        if passed:
            _write_adapter(folder / "adapter", entry, read_manifest(MANIFEST))
            seal(folder / "adapter", entry, writers.sha256_file(folder / "entry.json"))
    frame.write_report(
        "release",
        {
            "name": entry["name"],
            "run": entry["run"],
            "verdict": entry["verdict"],
            "entry_sha256": writers.sha256_file(OUT / "entry.json"),
            "released": passed,
        },
    )
    frame.closing_table(
        "release: entry written" + (", adapter released" if passed else ", no adapter released"),
        {"name": entry["name"], "verdict": entry["verdict"]},
    )


def _write_adapter(folder: Path, entry: dict[str, Any], manifest: Manifest) -> None:
    """Weights plus the exact tokenizer, template and stops of training."""
    shutil.copytree(ADAPTER, folder)
    base = materialise(manifest)
    for name in tokenizer_files(manifest):
        writers.write_bytes(folder / name, (base / name).read_bytes())
    _write_added(folder, manifest, entry["spec"]["tokenizer"]["added_tokens"])
    template = _template(base, entry["spec"]["tokenizer"])
    writers.write_text(folder / "chat_template.jinja", template)
    writers.write_json(
        folder / "generation_config.json",
        {"eos_token_id": writers.read_json(Path("reports/tokenize.json"))["stop_ids"]},
    )
    if entry["spec"]["method"]["type"] == FULL:
        writers.write_json(folder / "config.json", full_config(manifest, folder))
    writers.write_text(folder / "README.md", model_card(entry, folder=(OUT / "adapter").as_posix()))


def full_config(manifest: Manifest, folder: Path) -> dict[str, Any]:
    """The base's config.json, true for the trained weights in `folder`: their type, and how many
    rows the embedding has with added tokens."""
    written = writers.read_json(folder / FULL_FILES[1])
    config = {key: value for key, value in manifest.config.items() if key != "torch_dtype"}
    return config | {key: written[key] for key in ("dtype", "vocab_size")}


def _write_added(folder: Path, manifest: Manifest, texts: list[str]) -> None:
    """The tokenizer with its added tokens, reopened to see that they have the ids of training."""
    if not texts:
        return
    from transformers import AutoTokenizer

    tokenizer = load_tokenizer(manifest, texts)
    write_tokenizer(tokenizer, folder)
    released = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for text in texts:
        own, found = tokenizer(text)["input_ids"], released(text)["input_ids"]
        assert found == own, f"the released tokenizer reads {text!r} as {found}, not as {own}"


def tokenizer_files(manifest: Manifest) -> list[str]:
    """Files of the base that are neither weights nor a model's configuration."""
    return [
        name
        for name in sorted(manifest.files)
        if not name.endswith((".safetensors", ".safetensors.index.json"))
        and name not in ("config.json", "generation_config.json")
    ]


def _template(base: Path, tokenizer: dict[str, Any]) -> str:
    """The template of training; refused when it is no longer the pinned one."""
    name = tokenizer["chat_template"]
    text = template_text(base) if name == "base" else Path(name).read_text(encoding="utf-8")
    found = writers.sha256_bytes((text or "").encode("utf-8"))
    if found != tokenizer["sha256"]:
        message = f"the template now has sha256 {found}, the spec pins {tokenizer['sha256']}"
        raise InputError(Finding("pin-differs", message, file=name, field="tokenizer.sha256"))
    return text or ""


if __name__ == "__main__":
    frame.main("release", run)
