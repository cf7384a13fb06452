"""spec: is this run spec valid, fully pinned, and what conf/ composes?

Writes spec.json (everything), `valid` (constant content: later stages depend on it, so that a
refused spec stops them all, yet a changed learning rate does not touch the data stages) and the
report with the run name, the overrides and the effective batch.
"""

from pathlib import Path

from hashtune import frame, writers
from hashtune.spec.drift import check_drift, run_name
from hashtune.spec.load import read_params
from hashtune.spec.origins import checked
from hashtune.spec.pins import pinned_files

OUT = Path("build/spec")


def run() -> None:
    """Check params.yaml against schema, conf/ and pins; write spec.json and valid."""
    root = Path.cwd()
    params = read_params()
    drift = check_drift(root, params)
    spec = checked(params, root, drift.given)
    name = run_name(spec.run.experiment, drift.overrides)
    rows_per_step = spec.batch.micro * spec.batch.grad_accum * spec.batch.world_size
    writers.write_json(OUT / "spec.json", {"name": name, "spec": params})
    writers.write_text(OUT / "valid", "valid\n")
    report = {
        "run": name,
        "overrides": {change.key: change.params for change in drift.overrides},
        "rows_per_step": rows_per_step,
        "pinned_files": len(pinned_files(spec)),
    }
    frame.write_report("spec", report)
    if drift.note:
        frame.say(f"  note: {drift.note}")
    for change in drift.overrides:
        frame.say(f"  override: {change}")
    frame.closing_table("spec: valid", {"run": name, "rows per step": rows_per_step})


if __name__ == "__main__":
    frame.main("spec", run)
