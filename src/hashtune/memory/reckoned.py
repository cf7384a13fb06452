"""The memory of two revisions from their specs alone, where no rerun has recorded a plan.

The closed form of the stage plan on a base whose config.json is at hand. Rows are those that the
base's plan was made for, where the head packs the same ones; else both sides get one row of
max_seq_len tokens, every token trained, which is the most that a row can need.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.lineage.lock import read_stages, same_rows, stale_plan
from hashtune.memory.closed_form import Buckets
from hashtune.memory.known_models import CONFIG, base_of_repo
from hashtune.memory.limits import buckets_of
from hashtune.memory.of_spec import workload
from hashtune.memory.report import gigabytes
from hashtune.memory.shapes import read_shape
from hashtune.packing.worst_row import StepShape
from hashtune.review.figures import PLAN, Figure, buckets_in_gb
from hashtune.review.reports import read_report
from hashtune.spec.hardware import no_unit
from hashtune.spec.load import read_params, read_spec
from hashtune.spec.schema import BaseModelSpec, Spec
from hashtune.store.contents import read_object
from hashtune.store.manifest import Manifest, Source

SECTIONS = (
    *("base_model", "data", "method", "quantization", "optim", "batch", "activations"),
    *("precision", "hardware", "tokenizer", "kernels"),
)
HOW = (
    "Reckoned from the spec, not rerun: the closed form of the stage plan on both specs, {rows}."
    " Hours and cost come with `dvc repro plan`."
)
PACKED = "with the longest row that the base's plan was made for, {tokens} tokens"
FULL = (
    "with a row of `data.max_seq_len` tokens, every token trained, which is the most there can be"
)


@dataclass(frozen=True, slots=True)
class Reckoned:
    """Figures before and after, none where they cannot be had; `note` says how, or why not.
    `lacking` is what the head lacks to fit, in bytes; 0 where it fits or is not known."""

    figures: list[Figure]
    note: str
    lacking: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    """One revision, reckoned."""

    spec: Spec
    buckets: Buckets

    @property
    def needed(self) -> int:
        return sum(self.buckets.values())

    @property
    def available(self) -> int:
        return round(self.spec.hardware.memory_gb * 1e9)

    @property
    def dominant(self) -> str:
        return max(self.buckets, key=lambda name: (self.buckets[name], name))


def reckon(base: Path, head: Path, manifests: Sequence[Manifest], *, same_data: bool) -> Reckoned:
    """Memory before and after.

    Args:
        base: folder with the tracked files of a revision.
        head: the same of the other.
        manifests: bases at hand; one counts for a spec that names its source.
        same_data: whether no data file differs.
    """
    specs, reasons = [], []
    for name, root in (("base", base), ("head", head)):
        try:
            specs.append(_read(root))
        except InputError as error:
            reasons += [f"in the {name}, {_told(finding)}" for finding in error.findings]
    if reasons:
        return _not_reckoned(reasons)
    rows = _packed(base, head, specs) if same_data else None
    sides = []
    for name, root, spec in zip(("base", "head"), (base, head), specs, strict=True):
        try:
            sides.append(_reckoned(root, spec, manifests, rows or _most(spec)))
        except InputError as error:
            reasons += [f"in the {name}, {_told(finding)}" for finding in error.findings]
    if reasons:
        return _not_reckoned(reasons)
    old, new = sides
    how = PACKED.format(tokens=rows.longest_row) if rows else FULL
    lacking = max(0, new.needed - new.available)
    return Reckoned(list(_figures(old, new)), HOW.format(rows=how), lacking)


def _not_reckoned(reasons: Iterable[str]) -> Reckoned:
    return Reckoned([], f"Neither rerun nor reckoned from the spec: {'; '.join(reasons)}.")


def _told(finding: Finding) -> str:
    text = " ".join(finding.message.split()).replace("`", "'")
    return f"`{finding.field}`: `{text}`" if finding.field else f"`{text}`"


def _read(root: Path) -> Spec:
    spec = read_spec(*SECTIONS, path=root / "params.yaml")
    if findings := no_unit(spec.hardware, spec.precision):
        raise InputError(findings)
    return spec


def _reckoned(root: Path, spec: Spec, manifests: Sequence[Manifest], rows: StepShape) -> _Side:
    shape = read_shape(_config(root, spec.base_model, manifests))
    return _Side(spec, buckets_of(workload(spec, shape, rows)))


def _most(spec: Spec) -> StepShape:
    length = spec.data.max_seq_len
    return StepShape(
        row=0, longest_row=length, trained=length, masked=spec.data.packing, context=float(length)
    )


def _packed(base: Path, head: Path, specs: Sequence[Spec]) -> StepShape | None:
    """The longest row of the base's recorded plan, if the head's spec packs the same rows."""
    lock, old, new = (
        base / "dvc.lock",
        *(read_params(root / "params.yaml") for root in (base, head)),
    )
    if not lock.is_file() or _source(specs[0].base_model) != _source(specs[1].base_model):
        return None
    text = lock.read_text(encoding="utf-8")
    report = read_report(base, PLAN) or {}
    try:
        if stale_plan(text, old, Path(PLAN), root=base) or not same_rows(read_stages(text), new):
            return None
        found = report["micro_batch"]
        longest = int(found["longest_row"])
        return StepShape(
            row=int(report["row"]),
            longest_row=longest,
            trained=int(found["most_trained_in_a_row"]),
            masked=bool(found["document_mask"]),
            context=float(longest),  # of time only, which is not told
        )
    except (KeyError, TypeError, ValueError):  # a plan of an earlier version
        return None


def _config(root: Path, base: BaseModelSpec, manifests: Sequence[Manifest]) -> Mapping[str, Any]:
    """The base's config.json: of a manifest at hand, of a base in Git, or of the table of known
    bases."""
    source = _source(base)
    for manifest in manifests:
        if manifest.source == source:
            return manifest.config
    file = (root / base.repo / CONFIG).resolve() if base.source == "path" else None
    if file and file.is_relative_to(root.resolve()) and file.is_file():
        return read_object(file)
    known = base_of_repo(base.repo) if base.source == "hub" else None
    if known is None:
        message = f"no config.json of {base.name} is at hand: neither the DVC cache nor Git has it"
        fix = "`dvc repro base` or `dvc pull`, then again"
        raise InputError(Finding("no-shape", message, field="base_model", fix=fix))
    return known.config


def _source(base: BaseModelSpec) -> Source:
    return Source(
        kind=base.source,
        repo=base.repo,
        revision=base.revision,
        file=base.file,
        sha256=base.sha256,
    )


def _figures(old: _Side, new: _Side) -> Iterator[Figure]:
    """As review/figures.py tells a recorded plan."""
    yield Figure("memory needed, GB", gigabytes(old.needed), gigabytes(new.needed))
    yield Figure("memory of the hardware, GB", gigabytes(old.available), gigabytes(new.available))
    fits = ["yes" if side.needed <= side.available else "no" for side in (old, new)]
    yield Figure("fits", *fits)
    yield Figure("largest part", old.dominant, new.dominant)
    yield from buckets_in_gb(old.buckets, new.buckets)
