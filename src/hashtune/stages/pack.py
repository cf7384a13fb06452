"""Stage pack: which rows, in which order, at which step, and how much padding.

Reads build/tokenize/{train,eval}.parquet; writes build/pack/{train,eval,steps}.parquet and
reports/pack.json. Eval rows hold one document each, longest first, so that packing and the order
of steps can never change an eval loss and the largest eval batch comes first.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from hashtune import frame, records, writers
from hashtune.errors import Finding, InputError
from hashtune.packing.rows import build_rows
from hashtune.packing.stats import row_stats, step_stats
from hashtune.packing.steps import plan_steps
from hashtune.spec.length_hints import cut_hints

TOKENIZE = Path("build/tokenize")
PACK = Path("build/pack")


def run() -> None:
    """Lay the tokenized examples into rows and the rows into optimizer steps.

    Raises:
        InputError: a split has no examples, or an example is too long or has nothing to learn.
    """
    spec = frame.read_spec("data", "batch", "duration", "data_seed")
    max_seq_len = spec.data.max_seq_len
    examples = _read_examples()
    rows = build_rows(
        examples["train"],
        max_seq_len=max_seq_len,
        packing=spec.data.packing,
        file=str(TOKENIZE / "train.parquet"),
    )
    eval_rows = build_rows(
        sorted(examples["eval"], key=lambda example: (-len(example["input_ids"]), example["id"])),
        max_seq_len=max_seq_len,
        packing=False,
        file=str(TOKENIZE / "eval.parquet"),
    )
    rows_per_step = spec.batch.micro * spec.batch.grad_accum * spec.batch.world_size
    steps = plan_steps(
        rows,
        rows_per_step=rows_per_step,
        epochs=spec.duration.epochs,
        max_steps=spec.duration.max_steps,
        data_seed=spec.data_seed,
    )
    with writers.staged_directory(PACK) as folder:
        for name, split in (("train", rows), ("eval", eval_rows)):
            data = [asdict(row) for row in split]
            writers.write_parquet(folder / f"{name}.parquet", data, records.row_schema())
        plan = [asdict(step) for step in steps]
        writers.write_parquet(folder / "steps.parquet", plan, records.step_schema())
    report = {
        "train": row_stats(rows, max_seq_len=max_seq_len),
        "eval": row_stats(eval_rows, max_seq_len=max_seq_len),
        "plan": step_stats(steps, rows_per_step=rows_per_step)
        | {"rows_never_seen": len(rows) - len({row for step in steps for row in step.rows})},
    }
    frame.write_report("pack", report)
    for hint in cut_hints(spec.duration, rows=len(rows), rows_per_step=rows_per_step):
        frame.say(f"  hint: {hint}")
    _close(report)


def _read_examples() -> dict[str, list[dict[str, Any]]]:
    splits = {
        name: writers.read_parquet(TOKENIZE / f"{name}.parquet") for name in ("train", "eval")
    }
    empty = [
        Finding(
            "no-examples",
            "has no examples",
            file=str(TOKENIZE / f"{name}.parquet"),
            fix="see what was dropped and why in reports/tokenize.json and reports/prepare.json",
        )
        for name, examples in splits.items()
        if not examples
    ]
    if empty:
        raise InputError(empty)
    return splits


def _close(report: dict[str, dict[str, Any]]) -> None:
    train, plan = report["train"], report["plan"]
    frame.closing_table(
        "packed",
        {
            "examples": train["examples"],
            "rows": f"{train['rows']} (lower bound {train['lower_bound_rows']})",
            "padding": f"{train['padding_fraction_before']:.1%} before, "
            f"{train['padding_fraction_after']:.1%} after",
            "trained share": f"{train['trained_share']:.1%} of {train['tokens']} tokens",
            "steps": f"{plan['steps']} of {plan['rows_per_step']} rows",
            "tokens per step": f"{plan['tokens_per_step']['mean']:.0f}, "
            f"{plan['trained_tokens_per_step']['mean']:.0f} trained",
            "eval rows": report["eval"]["rows"],
        },
    )


if __name__ == "__main__":
    frame.main("pack", run)
