"""Peak memory and CPU seconds per row of the prepare stage, by the number of rows.

    python bench/prepare_memory.py ROWS.jsonl [--times 1,10,30] [--cleaning KEY=JSON ...]

ROWS.jsonl has "question" and "answer" per line (GSM8K). Its first 100 rows are eval, the next 500
test, the others the only source, written as often as --times says; a copy begins with words of its
own, so that it is a row of its own. Cleaning is as params.yaml says (exact duplicates, leakage by
exact match and by words), but leaks are reported, not refused. Each size runs in a process of its
own. Growth is (peak - peak of the first size) / (rows - rows of the first size).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.spec.load import read_params

ROOT = Path(__file__).resolve().parent.parent
EVAL, TEST = 100, 500
CHILD = "import sys; sys.path[:0] = sys.argv[1:]; import prepare_memory; prepare_memory.measured()"


def main() -> None:
    """Measure every size and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--times", default="1,10,30")
    parser.add_argument("--cleaning", nargs="*", default=[], metavar="KEY=JSON")
    wanted = parser.parse_args()
    cleaning = {key: json.loads(value) for key, value in (s.split("=", 1) for s in wanted.cleaning)}
    lines = wanted.rows.read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    first: dict[str, float] = {}
    for times in map(int, wanted.times.split(",")):
        found = size(rows, times, cleaning)
        first = first or found
        more = found["rows"] - first["rows"]
        growth = (found["peak"] - first["peak"]) / more if more else 0.0
        print(
            f"{found['rows']:9.0f} rows  peak {found['peak'] / 1e6:7.1f} MB  "
            f"{found['seconds']:7.1f} CPU s  {1e6 * found['seconds'] / found['rows']:6.0f} us/row  "
            f"{growth:7.0f} bytes a row more",
            flush=True,
        )


def size(rows: list[dict[str, str]], times: int, cleaning: dict[str, Any]) -> dict[str, float]:
    """Prepare `times` as many rows in a fresh process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = read_params(ROOT / "params.yaml")
        source = declared(folder, "rows", copies(rows[EVAL + TEST :], times))
        data["data"]["sources"] = [{"name": "rows", **source, "weight": 1.0, "max_rows": None}]
        for split, part in (("eval", rows[:EVAL]), ("test", rows[EVAL : EVAL + TEST])):
            data["data"][split] = {**declared(folder, split, part), "fraction": 0.0}
            data["data"][split] |= {"max_rows": None}
        data["data"] |= {"max_rows": None}
        data["data"]["replay"] |= {"uri": None, "sha256": None, "share": 0.0}
        data["regression"]["suites"] = []
        data["cleaning"] |= {"leakage_max_share": 1.0, **cleaning}
        writers.write_json(folder / "params.yaml", data)
        command = [sys.executable, "-c", CHILD, str(ROOT / "src"), str(ROOT / "bench")]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, env=os.environ)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return {**found, "rows": times * (len(rows) - EVAL - TEST)}


def declared(folder: Path, name: str, rows: Any) -> dict[str, Any]:
    """Write a file; what the spec says about it."""
    path = folder / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as handle:
        handle.writelines(f"{json.dumps(row)}\n" for row in rows)
    fields = {"instruction": "question", "output": "answer"}
    pinned = {"uri": path.name, "sha256": writers.sha256_file(path), "format": "jsonl"}
    return {**pinned, "schema": "instruction", "fields": fields}


def copies(rows: list[dict[str, str]], times: int) -> Iterator[dict[str, str]]:
    """Every row `times` times; from the second on with words of its own."""
    for copy in range(times):
        for row in rows:
            start = f"Case {copy} of many: " if copy else ""
            yield {"question": start + row["question"], "answer": start + row["answer"]}


def measured() -> None:
    """In the child: run the stage in the current folder, print peak bytes and seconds."""
    from hashtune.stages import prepare

    started = time.process_time()
    prepare.run()
    seconds = time.process_time() - started
    print(json.dumps({"peak": peak(), "seconds": seconds}))


def peak() -> int:
    """Peak resident bytes of this process; ru_maxrss would start at those of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024  # said in kB, which are KiB


if __name__ == "__main__":
    main()
