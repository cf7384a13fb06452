"""From buckets to a decision: does it fit, what to change first, how long, how much money."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

from hashtune.memory.activations import estimate
from hashtune.memory.closed_form import Buckets, Workload, flops_per_token

GB = 1e9
SECONDS_PER_HOUR = 3600.0

Edit = Callable[[Workload], Workload]


@dataclass(frozen=True, slots=True)
class Change:
    """One setting to change, the bytes it saves alone, and whether it alone makes the run fit."""

    setting: str
    saves: int
    enough: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Bytes needed (`buckets` summed) against bytes there, and what to change first.

    `changes` come largest saving first; `together` is what all of them would need.
    """

    buckets: Buckets
    needed: int
    available: int
    dominant: str
    changes: list[Change]
    together: int

    @property
    def fits(self) -> bool:
        """Whether the estimate is within the machine's memory."""
        return self.needed <= self.available


def decide(work: Workload, *, available: int) -> Decision:
    """Weigh a workload against `available` bytes of memory.

    Each change is computed by the same formulas with one setting replaced, so a saving counts
    every bucket it touches. Changes that save nothing are not listed.
    """
    buckets = estimate(work)
    needed = sum(buckets.values())
    edits = _edits(work)
    after = {setting: sum(estimate(edit(work)).values()) for setting, edit in edits.items()}
    helping = [setting for setting in edits if after[setting] < needed]
    changes = [
        Change(setting, needed - after[setting], after[setting] <= available)
        for setting in sorted(helping, key=lambda setting: (after[setting], setting))
    ]
    all_edits = [edits[setting] for setting in helping]
    together = reduce(lambda state, edit: edit(state), all_edits, work)
    return Decision(
        buckets=buckets,
        needed=needed,
        available=available,
        dominant=max(buckets, key=lambda name: (buckets[name], name)),
        changes=changes,
        together=sum(estimate(together).values()),
    )


def as_lora(work: Workload) -> Workload:
    """The same step with the adapter of conf/method/lora.yaml (a test compares the two)."""
    return replace(work, full=False, variant="lora", r=16, targets="all-linear", dropout=False)


def _edits(work: Workload) -> dict[str, Edit]:
    """The changes worth trying, as "setting=value"."""
    return _batch_edits(work) | _method_edits(work) | _step_edits(work)


def _batch_edits(work: Workload) -> dict[str, Edit]:
    """Halving micro keeps the effective batch when batch.grad_accum is doubled; a shorter
    max_seq_len drops or refuses longer examples."""
    edits: dict[str, Edit] = {}
    if work.micro > 1:
        micro = work.micro // 2
        edits[f"batch.micro={micro}"] = lambda w: replace(w, micro=micro)
    if work.longest_row > 1:
        length = work.longest_row // 2
        edits[f"data.max_seq_len={length}"] = lambda w: replace(
            w, longest_row=length, trained=min(w.trained, length)
        )
    if work.masked:
        edits["batch.attention=documents"] = lambda w: replace(w, masked=False, by_document=True)
    return edits


def _full_edits(work: Workload) -> dict[str, Edit]:
    """Another method, or another optimizer, whose state is the largest part."""
    edits: dict[str, Edit] = {
        "method=lora": as_lora,
        "method=qlora": lambda w: replace(as_lora(w), quantization="nf4", double_quant=True),
    }
    if not work.optimizer.endswith("8bit"):
        edits["optim=adamw_8bit"] = lambda w: replace(w, optimizer="adamw_8bit")
    return edits


def _method_edits(work: Workload) -> dict[str, Edit]:
    if work.full:
        return _full_edits(work)
    edits: dict[str, Edit] = {}
    if work.quantization != "nf4":  # beside virtual tokens, the base alone
        setting = "method=qlora" if work.soft is None else "quantization=nf4"
        edits[setting] = lambda w: replace(w, quantization="nf4", double_quant=True)
    if work.r > 1:
        rank = work.r // 2
        edits[f"method.r={rank}"] = lambda w: replace(w, r=rank)
    if work.virtual_tokens > 1:
        fewer = work.virtual_tokens // 2
        edits[f"method.virtual_tokens={fewer}"] = lambda w: replace(w, virtual_tokens=fewer)
    if work.variant == "dora":
        edits["method.variant=lora"] = lambda w: replace(w, variant="lora")
    if work.dropout:
        edits["method.dropout=0.0"] = lambda w: replace(w, dropout=False)
    return edits


def _step_edits(work: Workload) -> dict[str, Edit]:
    """How a step computes; these change no formula."""
    edits: dict[str, Edit] = {}
    if work.precision == "fp32":
        edits["precision=bf16"] = lambda w: replace(w, precision="bf16")
    if not work.fused:
        edits["kernels=fused"] = lambda w: replace(w, fused=True)
    if work.checkpointing == "none":
        edits["activations=selective"] = lambda w: replace(w, checkpointing="selective")
    if work.checkpointing != "full":  # after selective: together, full holds
        edits["activations=full"] = lambda w: replace(w, checkpointing="full")
    if work.device == "cuda" and work.checkpointing != "none" and not work.offload:
        edits["activations.offload=true"] = lambda w: replace(w, offload=True)
    return edits


@dataclass(frozen=True, slots=True)
class Duration:
    """What the run takes: tokens without padding, FLOPs, speed, hours, and their price."""

    tokens: int
    flops: float
    tokens_per_second: float
    hours: float
    cost: float


def duration(
    work: Workload,
    *,
    tokens: int,
    context: float,
    peak_tflops: float,
    expected_utilisation: float,
    price_per_hour: float,
) -> Duration:
    """Time and cost of training on `tokens` tokens at the expected share of the peak.

    `context` is the mean number of tokens a token attends over, see `flops_per_token`. Loading,
    evaluation and padding come on top.
    """
    each = flops_per_token(
        work.shape,
        adapter=work.adapter_parameters,
        context=context,
        recomputed_blocks=work.recomputed_blocks,
        full=work.full,
    )
    speed = peak_tflops * 1e12 * expected_utilisation / each
    hours = tokens / speed / SECONDS_PER_HOUR
    return Duration(tokens, tokens * each, speed, hours, hours * price_per_hour)
