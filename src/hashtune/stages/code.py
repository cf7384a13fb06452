"""code: which code and libraries does each stage depend on?

Writes build/code/<stage>.json per stage: AST hashes of its import closure and the locked versions
of the packages that can change its bits. A stage depends on that one file, so a comment retrains
nothing and a new torch does. Refuses an environment that differs from requirements.lock.
"""

import sys
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.errors import InputError
from hashtune.lineage.code import (
    closure,
    environment_findings,
    import_findings,
    packages,
    read_lock,
)

SRC = Path("src")
LOCK = Path("requirements.lock")
OUT = Path("build/code")


def run() -> None:
    """Hash every stage's closure; refuse an environment that is not the locked one."""
    lock = read_lock(LOCK.read_text(encoding="utf-8"), file=str(LOCK))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = sorted(path.stem for path in (SRC / "hashtune/stages").glob("*.py"))
    records: dict[str, dict[str, Any]] = {}
    imports: set[str] = set()
    for stage in (name for name in names if name not in ("__init__", "code")):
        found = closure(f"hashtune.stages.{stage}", SRC)
        imports |= found.imports
        records[stage] = {
            "stage": stage,
            "python": python,
            "modules": found.modules,
            "packages": packages(found.imports, lock),
        }
    counted = {name for record in records.values() for name in record["packages"]}
    findings = [*import_findings(imports, lock), *environment_findings(counted, lock)]
    if findings:
        raise InputError(findings)
    for stage, record in records.items():
        writers.write_json(OUT / f"{stage}.json", record)
    frame.closing_table(
        "code: hashed", {"stages": len(records), "packages that count": len(counted)}
    )


if __name__ == "__main__":
    frame.main("code", run)
