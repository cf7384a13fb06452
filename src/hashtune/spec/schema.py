"""The strict schema of the run spec: every field, its type and its range.

Nothing here has a default: defaults live in conf/ alone. Unknown keys are refused, a text where a
number belongs is refused (an integer is accepted for a float, as YAML writes 1 for 1.0).
"""

import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from hashtune.spec.rows import Action, Format, Schema

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Similarity = Annotated[float, Field(gt=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


def _day(text: str) -> str:
    datetime.date.fromisoformat(text)
    return text


Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_day)]
Positive = Annotated[float, Field(gt=0.0)]
Weight = Annotated[float, Field(gt=0.0, le=1000.0)]  # copies of a row are held in memory
NonNegative = Annotated[float, Field(ge=0.0)]
BelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
OptimizerName = Literal[
    "adamw",
    "adamw_fused",
    "adamw_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "adafactor",
    "lion",
    "muon",
    "sgd",
]

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Variant = Literal["lora", "rslora", "dora"]
Attention = Literal["mask", "documents"]
Kernels = Literal["plain", "fused"]
Device = Literal["cpu", "cuda"]
Layout = Literal["rows", "length_grouped", "padding_free"]


class Section(BaseModel):
    """A section of the spec: strict types, unknown keys refused, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Run(Section):
    """Which experiment overlay this is; the full run name is derived from what varies."""

    experiment: Name


class InitAdapter(Section):
    """An adapter to continue from: its folder in the project, the sha256 of its weights."""

    path: str
    sha256: Sha256


class BaseModelSpec(Section):
    """Which weights. What pins them: wheel and path by sha256, hub by a 40-hex revision."""

    name: Name
    source: Literal["wheel", "hub", "path", "synthetic"]
    repo: str
    revision: str
    file: str | None
    sha256: Sha256 | None
    init_adapter: InitAdapter | None


class TokenizerSpec(Section):
    """Chat template and what is passed to it. `chat_template`: "base" or a file in Git.

    `added_tokens`: texts that become one special token each; their rows are trained."""

    chat_template: str
    sha256: Sha256
    added_tokens: list[str]
    template_kwargs: dict[str, Any]
    date: Day
    stops: list[str]
    unstable: Literal["error", "split", "last"]
    mismatch: Literal["error", "as_prompted", "as_stored"]
    special_in_content: Literal["error", "escape"]
    system: Literal["error", "merge_into_user"]


class Source(Section):
    """One data file: where, its content hash, how to read it, its part in the mixture. `fields`
    maps names of the schema to the file's own where they differ."""

    name: Name
    uri: str
    sha256: Sha256
    format: Format
    schema_: Schema = Field(alias="schema")
    fields: dict[str, str]
    weight: Weight
    max_rows: Count | None


class HeldOut(Section):
    """Eval or test data: a file of its own, or a fraction split off by content hash."""

    uri: str | None
    sha256: Sha256 | None
    format: Format
    schema_: Schema = Field(alias="schema")
    fields: dict[str, str]
    fraction: Share
    max_rows: Count | None


class Replay(Section):
    """General prompts the base answers itself; `share` is their part of the training mix."""

    uri: str | None
    sha256: Sha256 | None
    share: Share
    max_prompts: Count | None
    max_new_tokens: Count
    batch_size: Count


class UserMetric(Section):
    """A function of the user's own: its dotted path in the project, the sha256 of its file."""

    path: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]
    sha256: Sha256


class JsonSchema(Section):
    """A JSON Schema (draft 2020-12) that answers are held against."""

    uri: str
    sha256: Sha256


class Task(Section):
    """How an answer is scored against the reference, and what the untuned base is told.
    user_metric: for the metric `user`, else null. json_schema: a figure beside the metric; null is
    off."""

    metric: Literal[
        "json_fields",
        "exact_match",
        "normalised_match",
        "numeric_answer",
        "token_f1",
        "rouge_l",
        "bleu",
        "chrf",
        "user",
    ]
    user_metric: UserMetric | None
    fields: list[str]
    json_schema: JsonSchema | None
    base_instruction: str | None


class Data(Section):
    """Sources, splits and how conversations become tokens. `max_rows` caps every source."""

    name: Name
    sources: Annotated[list[Source], Field(min_length=1)]
    replay: Replay
    eval: HeldOut
    test: HeldOut
    max_rows: Count | None
    max_seq_len: Count
    packing: bool
    loss_on: Literal["assistant", "last_assistant"]
    over_length: Literal["drop", "error", "split"]
    task: Task


class Normalise(Section):
    """What is evened out in the texts themselves, in the order of these fields."""

    newlines: Literal["none", "lf"]
    unicode: Literal["none", "nfc", "nfkc"]
    whitespace: Literal["none", "trim", "collapse"]


class Filters(Section):
    """Limits of a training row, in characters and shares of its last answer; null is off."""

    min_answer_chars: Count | None
    max_answer_chars: Count | None
    min_chars: Count | None
    max_chars: Count | None
    min_letter_share: Share | None
    max_repeated_line_share: Share | None
    max_repeated_word_share: Share | None


class PatternFile(Section):
    """A file of patterns that no training row may hold, and what happens to one that does."""

    name: Name
    uri: str
    sha256: Sha256
    action: Literal["drop", "error"]


class NearDuplicates(Section):
    """Jaccard similarity of the word shingles of two texts from which they are one; null is off."""

    threshold: Similarity | None
    shingle: Count


class Balance(Section):
    """At most max_rows training rows per value of `by`: "group" or "answer.<JSON field>"."""

    by: Annotated[str, StringConstraints(pattern=r"^(group|answer\..+)$")] | None
    max_rows: Count | None


class Cleaning(Section):
    """Policies for bad rows, texts, duplicates and leakage."""

    on_bad_row: Action | dict[str, Action]  # for all rules, or by rule with a "default"
    max_drop_share: Share
    normalise: Normalise
    filters: Filters
    patterns: list[PatternFile]
    deduplicate: Literal["exact", "none"]
    near_duplicates: NearDuplicates
    balance: Balance
    leakage_ngram: Count
    leakage_near: NearDuplicates
    leakage_groups: Literal["error", "report"]
    leakage_action: Literal["error", "drop"]  # of train rows that leak by text or words
    leakage_max_share: Share


class Quantization(Section):
    """How the frozen base is stored while training."""

    type: Literal["none", "int8", "nf4"]
    double_quant: bool


class Method(Section):
    """The adapter. `qlora` is LoRA over a quantised base; the variant holds over either: rslora
    scales by alpha / sqrt(r), dora trains a magnitude for each output. `targets`: "all-linear" or
    names and patterns (targets.py). `prompt` and `prefix` have virtual tokens and nothing else,
    `full` trains the base itself and has nothing beside its type (methods.py)."""

    type: Literal["lora", "qlora", "prompt", "prefix", "full"]
    variant: Variant | None
    r: Count | None
    alpha: Positive | None
    dropout: BelowOne | None
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] | None
    virtual_tokens: Count | None


class Optim(Section):
    """The optimizer. lr per optimizer step; weight_decay spares biases and norms. neftune_alpha
    scales the noise on the embeddings while training; null is off. master_weights: the trainable
    parameters are fp32; else bf16, without an fp32 copy."""

    name: OptimizerName
    lr: Positive
    beta1: BelowOne
    beta2: BelowOne
    eps: Positive
    weight_decay: NonNegative
    grad_clip: Positive
    neftune_alpha: Positive | None
    master_weights: bool


class BranchFrom(Section):
    """The state of another run's stable phase: its folder in the project, the sha256 of its
    manifest.json."""

    path: str
    sha256: Sha256


class Schedule(Section):
    """Learning rate over steps. Warm-up in steps or as a fraction of all; of wsd the shape of the
    decay and its length as a fraction, or the number of updates before it. branch_from: the state
    that the run begins with; the steps before it are not run."""

    name: Literal["cosine", "linear", "constant", "wsd"]
    warmup_fraction: Share | None
    warmup_steps: Whole | None
    min_lr_ratio: Share
    decay: Literal["linear", "cosine", "1-sqrt"] | None
    decay_fraction: Share | None
    decay_start: Whole | None
    branch_from: BranchFrom | None


class Duration(Section):
    """How long: whole epochs, cut at max_steps when given."""

    epochs: Count
    max_steps: Count | None


class Batch(Section):
    """Rows per micro-batch, micro-batches per step, processes. `attention` keeps the documents of
    a row apart by a mask or by a call for each; `layout`: how a step's rows become
    micro-batches."""

    micro: Count
    grad_accum: Count
    world_size: Literal[1]
    attention: Attention
    layout: Layout


class Activations(Section):
    """What a step computes again instead of keeping it for the backward: no block, every second
    one, or all. `offload` keeps the inputs of those blocks in host memory; CUDA only."""

    checkpointing: Literal["none", "selective", "full"]
    offload: bool


class Determinism(Section):
    """Strict: deterministic algorithms or an error. `threads` changes CPU summation order."""

    mode: Literal["strict", "off"]
    threads: Count


class Checkpoint(Section):
    """Resume state: how often, how many, and which one becomes the adapter. early_stop_patience:
    evaluations without a new best eval loss after which training ends; null is off. samples: eval
    prompts that are answered at each evaluation; 0 is off. keep_stable: the step of a stable phase
    whose state is kept for branches; null is off."""

    every_steps: Count
    keep_last: Count
    eval_every_steps: Count
    select: Literal["best", "last"]
    early_stop_patience: Count | None
    max_skipped_steps: Whole
    samples: Whole
    keep_stable: Count | None


class Evaluation(Section):
    """Decoding of base and adapter: greedy, one engine, one precision, one frozen batch plan.
    noise_items: items of each set that are answered again in other batches; likelihood_items: test
    items whose reference is scored by likelihood. 0 is off."""

    engine: Literal["transformers", "vllm"]
    base_precision: Literal["fp32", "bf16"]
    batch_size: Count
    max_new_tokens: Count
    noise_items: Whole
    likelihood_items: Whole


class Suite(Section):
    """One regression suite file."""

    name: Name
    uri: str
    sha256: Sha256


class Regression(Section):
    """The frozen items that the adapter must not lose."""

    suites: list[Suite]
    max_new_tokens: Count
    max_items: Count | None


class EvalGate(Section):
    """When an adapter ships. Drops and gains are differences of mean scores in [0, 1].
    discordant_share: of the suite items, scored otherwise than the base by an adapter that loses
    nothing, as planned with; min_regression_items counts those that can show a loss."""

    task_min: Share
    task_metric_min_gain: float
    regression_max_drop: Share
    slice_max_drop: Share
    unfinished_max_share: Share
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    discordant_share: Annotated[float, Field(gt=0.0, le=1.0)]
    min_task_items: Count
    min_regression_items: Whole


class Release(Section):
    """The registry name of the artifact."""

    name: Name


class PeakTflops(Section):
    """Dense matrix products, 1e12 operations a second by precision; null where the hardware has no
    unit for it."""

    fp32: Positive
    tf32: Positive | None
    bf16: Positive | None
    fp16: Positive | None


class Hardware(Section):
    """What the plan reckons with; nothing here may change a bit of the adapter. memory_gb: what the
    driver lets a process have, 1e9 bytes; bandwidth_gbs: of that memory, null if not known;
    price_per_hour: 0 is no price."""

    name: Name
    device: Device
    memory_gb: Positive
    overhead_gb: NonNegative
    peak_tflops: PeakTflops
    bandwidth_gbs: Positive | None
    expected_utilisation: Annotated[float, Field(gt=0.0, le=1.0)]
    price_per_hour: NonNegative
    currency: str


class PlanChecks(Section):
    """What checks the memory plan beyond its formulas. rehearse: plan runs a step on fake tensors.
    probe_steps: real steps over the longest rows before train's first one; 0 is off. margin: the
    share by which their peak may exceed the planned one. Nothing here changes a bit of the
    adapter."""

    rehearse: bool
    probe_steps: Whole
    margin: NonNegative


class Spec(Section):
    """The whole run spec, params.yaml after composition."""

    run: Run
    conf_sha256: Sha256
    base_model: BaseModelSpec
    tokenizer: TokenizerSpec
    data: Data
    cleaning: Cleaning
    quantization: Quantization
    method: Method
    optim: Optim
    schedule: Schedule
    duration: Duration
    batch: Batch
    activations: Activations
    precision: Precision
    device: Device
    kernels: Kernels
    seed: Whole
    data_seed: Whole
    init_seed: Whole
    determinism: Determinism
    checkpoint: Checkpoint
    evaluation: Evaluation
    regression: Regression
    eval_gate: EvalGate
    release: Release
    hardware: Hardware
    plan: PlanChecks
