"""Planned against measured, and memory that runs out: worked messages, no training."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune import writers
from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.load import read_params, validate
from hashtune.training.first_changes import Changes
from hashtune.training.memory_probe import Measured
from hashtune.training.out_of_memory import Account, ran_out
from hashtune.training.phases import Phase, Position
from hashtune.training.planned import (
    Planned,
    check_margin,
    compare,
    memory_lines,
    read_planned,
)

GB = 10**9
BUCKETS = {"weights": 4 * GB, "adapter": GB, "gradients": GB, "optimizer": 2 * GB}
PLANNED = Planned(
    {**BUCKETS, "working": 2 * GB},
    10 * GB,
    [("activations=full", 1.5), ("method=qlora", 1.0), ("optim=adamw_8bit", 0.5)],
    {},
)


def measured(working: int, **changes: Any) -> Measured:
    held = {**BUCKETS, **changes, "working": working}
    peak = sum(held.values())
    phases: dict[Phase, int] = {"forward": 9 * GB, "loss": 8 * GB, "backward": peak}
    return Measured(peak, None, phases, held, 10, 10, 7, 2, 512, 3.0)


@pytest.fixture
def changes(root: Path) -> Changes:
    return Changes(validate(read_params(root / "params.yaml")))


def test_a_step_within_the_margin_passes(changes: Changes) -> None:
    check_margin(PLANNED, measured(3_500_000_000), margin=0.15, changes=changes)  # 11.5 of 10
    check_margin(None, measured(99 * GB), margin=0.15, changes=changes)


def refused(found: Measured, changes: Changes) -> Any:
    with pytest.raises(InputError) as caught:
        check_margin(PLANNED, found, margin=0.15, changes=changes)
    return caught.value.findings[0]


def test_more_than_the_margin_is_refused_with_bucket_and_change(changes: Changes) -> None:
    finding = refused(measured(4 * GB), changes)
    assert (finding.rule, finding.field) == ("exceeds-plan", "plan.margin")
    assert finding.message == (
        "the first steps took 12.000 GB of tensors, 20 % more than the planned 10.000 GB, and "
        "plan.margin allows 15 %; most exceeds working memory (activations, logits and "
        "workspaces; the peak is in the backward over row 7): 4.000 GB, planned 2.000 GB"
    )
    assert finding.fix == (
        "activations=full saves 1.50 GB; or where the machine has the room -S plan.margin=0.2"
    )


@pytest.mark.parametrize(
    ("bucket", "fix"),
    [
        ("weights", "method=qlora saves 1.00 GB"),
        ("optimizer", "method=qlora saves 1.00 GB, or optim=adamw_8bit saves 0.50 GB"),
    ],
)
def test_the_bucket_that_exceeds_most_is_named(bucket: str, fix: str, changes: Changes) -> None:
    finding = refused(measured(2 * GB, **{bucket: BUCKETS[bucket] + 4 * GB}), changes)
    assert f"most exceeds {bucket}: " in finding.message
    assert finding.fix.startswith(f"{fix};")


def test_side_by_side(changes: Changes) -> None:
    found = compare(PLANNED, measured(3 * GB), margin=0.15)
    assert found is not None
    assert found["peak_bytes"] == {"planned": 10 * GB, "measured": 11 * GB}
    assert found["buckets_bytes"]["working"] == {"planned": 2 * GB, "measured": 3 * GB}
    assert found["phases_bytes"]["backward"] == {"planned": None, "measured": 11 * GB}
    assert compare(PLANNED, None, margin=0.15) is None
    assert memory_lines(PLANNED, measured(3 * GB)) == [
        "memory of 10 steps over 512 tokens (row 7): 11.000 GB of tensors at most, in the "
        "backward, planned 10.000 GB",
        "  in GB (planned): weights 4.000 (4.000), adapter 1.000 (1.000), gradients 1.000 (1.000),"
        " optimizer 2.000 (2.000), working 3.000 (2.000)",
    ]
    assert memory_lines(None, measured(3 * GB))[1].startswith("  in GB: weights 4.000, ")


def test_the_plan_is_read_when_it_is_of_this_run(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert read_planned(file, "a")[0] is None
    figures = {"activations": 1, "logits_loss": 2, "dequantisation": 0, "overhead": 99}
    report = {
        "buckets_bytes": BUCKETS | figures,
        "static_bytes": BUCKETS,
        "changes": [{"setting": "x=1", "saves_gb": 2.0}],
    }
    writers.write_json(file, report)  # of a version that named no workload
    assert read_planned(file, "a")[0] is None
    writers.write_json(file, report | {"workload_sha256": "b"})
    planned, line = read_planned(file, "a")
    assert planned is None
    assert line == f"{file} is of another run: what is measured is compared with nothing"
    planned, line = read_planned(file, "b")
    assert planned == Planned({**BUCKETS, "working": 3}, 8 * GB + 3, [("x=1", 2.0)], {})
    assert line == "8.00 GB of tensors are planned"
    rehearsal = {"peak_bytes": 9 * GB, "phases_bytes": {"loss": 9 * GB}}
    writers.write_json(file, report | {"workload_sha256": "b", "rehearsal": rehearsal})
    planned, _ = read_planned(file, "b")
    assert planned is not None
    assert (planned.peak, planned.buckets["working"]) == (9 * GB, GB)
    assert planned.phases == {"loss": 9 * GB}


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("The size of tensor a (12) must match"), False),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_what_counts_as_memory_that_ran_out(error: BaseException, known: bool) -> None:
    assert ran_out(error) is known


def test_torch_s_own_error_on_a_cpu_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert ran_out(caught.value)


def account(changes: Changes, phase: Phase, **known: Any) -> Account:
    rows = [[Row(n, ["a"], [n + 1], [5] * (n + 1), [5] * (n + 1))] for n in range(3)]
    return Account(changes, Position(phase, 4, rows, begun=2), **known)


def words(found: Account, error: BaseException | None = None) -> Any:
    with pytest.raises(InputError) as caught, found.refusal():
        raise error or MemoryError
    return caught.value.findings[0]


@pytest.mark.parametrize(
    ("phase", "said", "first"),
    [
        ("load", "while the base is loaded: the weights of the base", "method=qlora"),
        ("proof", "in a proof beside the steps: the activations of", "activations=full"),
        ("resume", "while the state is restored: the optimizer's state", "optim=adamw_8bit"),
        ("forward", "in the forward of step 4 (row 1, 2 tokens long): act", "activations=full"),
        ("loss", "in the loss of step 4 (row 1, 2 tokens long): the logits", "a lower data.max"),
        ("backward", "in the backward of step 4 (row 1, 2 tokens", "activations=full"),
        ("optimizer", "in the optimizer of step 4 (row 1, 2 tokens", "optim=adamw_8bit"),
        ("evaluation", "in the evaluation after step 4 (row 1, 2 tok", "a lower data.max_seq_len"),
        ("save", "while the checkpoint of step 4 is written: the copy", "optim=adamw_8bit"),
    ],
)
def test_each_phase_has_its_blame(phase: Phase, said: str, first: str, changes: Changes) -> None:
    finding = words(account(changes, phase))
    assert finding.rule == "out-of-memory"
    assert finding.message.startswith(f"memory ran out {said}")
    assert finding.fix.startswith(first)
    assert finding.fix.endswith("`dvc repro` continues from the last checkpoint")


def test_planned_and_measured_are_told(changes: Changes) -> None:
    known = account(changes, "optimizer", planned=PLANNED, measured=measured(3 * GB))
    finding = words(known, RuntimeError("DefaultCPUAllocator: can't allocate memory:\n  4 bytes"))
    assert "planned 10.00 GB of tensors, 4.00 of it there; the probe measured 11.00 GB; " in (
        finding.message
    )
    assert finding.message.endswith("(DefaultCPUAllocator: can't allocate memory: 4 bytes)")
    assert finding.fix.startswith("method=qlora saves 1.00 GB, or optim=adamw_8bit saves 0.50 GB; ")


def test_in_the_probe_no_step_is_named(changes: Changes) -> None:
    known = account(changes, "backward")
    place = "in the backward of the probe before the first step: act"
    with pytest.raises(InputError, match=place), known.refusal(), known.probe():
        raise MemoryError
    assert replace(known).probing


def test_other_errors_pass(changes: Changes) -> None:
    with pytest.raises(RuntimeError, match="shapes"), account(changes, "forward").refusal():
        raise RuntimeError("shapes")


def test_an_evaluation_names_its_longest_rows() -> None:
    rows = [[Row(n, ["a"], [n], [5] * n, [5] * n)] for n in (2, 9, 4)]
    position = Position()
    position.take("evaluation", rows, step=3)
    assert [row.row for row in position.rows] == [9]
    position.take("forward", rows, step=4)
    position.enter("forward")
    assert [row.row for row in position.rows] == [2]
    position.enter("loss")
    position.enter("forward")
    assert [row.row for row in position.rows] == [9]
    assert Position().rows == ()
