"""The resolver `${conf_sha256:}`: stamps params.yaml with the hash of conf/ at composition.

`dvc repro` does not compose, so the `spec` stage compares this stamp with conf/ as it is now.
Hydra imports this module by itself; it uses only the standard library and omegaconf, because a
plugin that fails to import gives a misleading error. DVC resolves after Hydra's global state is
cleared, so conf/ is found by walking up to the DVC root.
"""

import hashlib
import subprocess
from pathlib import Path

from omegaconf import OmegaConf


def dvc_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds .dvc; FileNotFoundError without one."""
    for folder in (start, *start.parents):
        if (folder / ".dvc").is_dir():
            return folder
    raise FileNotFoundError(f"no .dvc folder at or above {start}")


def conf_sha256(root: Path) -> str:
    """Hex sha256 over names and bytes of every YAML file under root/conf, in name order."""
    digest = hashlib.sha256()
    conf = root / "conf"
    for file in sorted(conf.rglob("*.yaml"), key=lambda path: path.relative_to(conf).as_posix()):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(conf).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def untracked_conf(root: Path) -> list[str]:
    """Files under conf/ that Git does not know: `--temp` and `--queue` would run without them."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "--", "conf"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []  # no Git here: nothing can be queued from it either
    return sorted(line for line in listed.stdout.split("\n") if line)


def stamp() -> str:
    """What `${conf_sha256:}` resolves to; ValueError names untracked files."""
    root = dvc_root(Path.cwd())
    missing = untracked_conf(root)
    if missing:
        names = " ".join(missing)
        raise ValueError(f"not in Git, so absent in --queue and --temp runs: git add {names}")
    return conf_sha256(root)


OmegaConf.register_new_resolver("conf_sha256", stamp, replace=True)
