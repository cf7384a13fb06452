"""Settings to change when a step does not fit: what each does to the workload, what it costs, and
whether the run stays the same one.

    same    the same updates but for the order of sums: how a step is computed
    other   other numbers: how weights, states or products are stored
    less    fewer trained parameters
    data    less data
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hashtune.memory.closed_form import Workload

Kind = Literal["same", "other", "less", "data"]
KINDS: tuple[Kind, ...] = ("same", "other", "less", "data")

SMALLER = "smaller products may use less of the peak"
HOST = "transfers to host memory, and how much of them is hidden, are not reckoned"
STATES = "as fast as 32-bit states or faster (Dettmers et al. 2021, arXiv 2110.02861)"
KERNELS = "kernels are not reckoned; faster where measured (docs/log.md)"
MASK = "without a mask attention computes less; not reckoned"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change as it is typed and what it does. `known` is False where FLOPs do not say what it
    costs; `note` says what they leave out."""

    setting: str
    apply: Callable[[Workload], Workload]
    kind: Kind
    note: str = ""
    known: bool = True


def edits(work: Workload, *, grad_accum: int, shorter: int | None) -> list[Edit]:
    """The changes worth trying, one setting each. `shorter` is the length of rows to try."""
    method = _full_method(work) if work.full else _adapter(work)
    return [*_step(work), *_micro(work, grad_accum), *method, *_rows(work, shorter)]


def _step(work: Workload) -> Iterator[Edit]:
    """How a step computes; these change no formula."""
    if not work.fused:
        yield Edit("kernels=fused", lambda w: replace(w, fused=True), "same", KERNELS, known=False)
    if work.masked and work.soft != "prefix":
        yield Edit(
            "batch.attention=documents",
            lambda w: replace(w, masked=False, by_document=True),
            *("same", MASK),
            known=False,
        )
    if work.checkpointing == "none":
        yield Edit("activations=selective", _selective, "same")
    if work.checkpointing != "full":
        yield Edit("activations=full", lambda w: replace(w, checkpointing="full"), "same")
    if work.device == "cuda" and work.checkpointing != "none" and not work.offload:
        offload = "activations.offload=true"
        yield Edit(offload, lambda w: replace(w, offload=True), "same", HOST, known=False)
    if work.precision == "fp32":
        yield Edit("precision=bf16", lambda w: replace(w, precision="bf16"), "other")


def _selective(work: Workload) -> Workload:
    """Beside full, full holds."""
    return work if work.checkpointing == "full" else replace(work, checkpointing="selective")


def _micro(work: Workload, grad_accum: int) -> Iterator[Edit]:
    """Fewer rows at a time and as many times more of them: an equal effective batch."""
    if work.micro == 1:
        return
    part = next(n for n in range(2, work.micro + 1) if work.micro % n == 0)
    micro = work.micro // part
    setting = f"batch.micro={micro} batch.grad_accum={grad_accum * part}"
    yield Edit(setting, lambda w: replace(w, micro=micro, accumulates=True), "same", SMALLER)


def _rows(work: Workload, shorter: int | None) -> Iterator[Edit]:
    """A shorter max_seq_len drops or refuses longer examples, or splits conversations by turn."""
    if shorter is None or not 0 < shorter < work.longest_row:
        return
    yield Edit(
        f"data.max_seq_len={shorter}",
        lambda w: replace(w, longest_row=shorter, trained=min(w.trained, shorter)),
        "data",
    )


def as_lora(work: Workload) -> Workload:
    """The same step with the adapter of conf/method/lora.yaml (a test compares the two)."""
    return replace(work, full=False, variant="lora", r=16, targets="all-linear", dropout=False)


def _full_method(work: Workload) -> Iterator[Edit]:
    """Another optimizer or method, whose state is the largest part."""
    if not work.optimizer.endswith("8bit"):
        yield _states(work)
    yield Edit("method=lora", as_lora, "less")
    yield Edit(
        "method=qlora",
        lambda w: replace(as_lora(w), quantization="nf4", double_quant=True),
        "less",
    )


def _states(work: Workload) -> Edit:
    return Edit("optim=adamw_8bit", lambda w: replace(w, optimizer="adamw_8bit"), "other", STATES)


def _adapter(work: Workload) -> Iterator[Edit]:
    if work.quantization != "nf4":  # beside virtual tokens, the base alone
        setting = "method=qlora" if work.soft is None else "quantization=nf4"
        yield Edit(setting, lambda w: replace(w, quantization="nf4", double_quant=True), "other")
    if work.optimizer in ("adamw", "adamw_fused", "paged_adamw_32bit"):
        yield _states(work)
    if work.variant == "dora":
        yield Edit("method.variant=lora", lambda w: replace(w, variant="lora"), "other")
    if work.dropout:
        yield Edit("method.dropout=0.0", lambda w: replace(w, dropout=False), "other")
    if work.r > 1:
        rank = work.r // 2
        yield Edit(f"method.r={rank}", lambda w: replace(w, r=rank), "less")
    if work.virtual_tokens > 1:
        fewer = work.virtual_tokens // 2
        setting = f"method.virtual_tokens={fewer}"
        yield Edit(setting, lambda w: replace(w, virtual_tokens=fewer), "less")


@dataclass(frozen=True, slots=True)
class Lost:
    """What a shorter max_seq_len leaves out: so many of all examples, with this share of all
    tokens."""

    examples: int
    of: int
    tokens: float


def lost_by(shorter: int, lengths: Sequence[int]) -> Lost | None:
    """The examples longer than `shorter`, dropped; None where no lengths are known."""
    if not lengths:
        return None
    long = [length for length in lengths if length > shorter]
    return Lost(len(long), len(lengths), sum(long) / sum(lengths))
