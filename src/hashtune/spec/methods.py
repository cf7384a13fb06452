"""Which fields a method has, what it excludes, and the names of the files it leaves."""

from collections.abc import Iterator

from hashtune.errors import Finding
from hashtune.spec.schema import Spec

FILE = "params.yaml"
FULL = "full"  # no adapter: the base itself is trained
FULL_FILES = ("model.safetensors", "full.json")  # weights and settings, in the adapter's folder
PEFT_FILES = ("adapter_model.safetensors", "adapter_config.json")
SOFT = ("prompt", "prefix")  # virtual tokens; no matrices beside the base's
FIELDS = {
    "lora": ("variant", "r", "alpha", "dropout", "targets"),
    "qlora": ("variant", "r", "alpha", "dropout", "targets"),
    "prompt": ("virtual_tokens",),
    "prefix": ("virtual_tokens",),
    "full": (),
}


def adapter_files(kind: str) -> tuple[str, str]:
    """Names of weights and settings that training with this method.type leaves."""
    return FULL_FILES if kind == FULL else PEFT_FILES


def method_findings(spec: Spec) -> list[Finding]:
    """All findings about the method's own fields and what cannot go with it."""
    found = list(_fields(spec))
    if spec.method.type in SOFT:
        found += _one_document(spec)
    if spec.method.type == FULL:
        found += full_findings(spec)
    return found


def full_findings(spec: Spec) -> list[Finding]:
    """What method.type full excludes; `train` asks again before it loads the base."""
    found = []
    if (stored := spec.quantization.type) != "none":
        message = f"full trains the base's own weights, and those of {stored} are codes"
        fix = "quantization=none, or method=qlora"
        found.append(_finding("quantization.type", message, fix))
    if not spec.optim.master_weights:
        message = "full loads and trains fp32 weights, which are their own master weights"
        fix = "optim.master_weights=true, or method=lora"
        found.append(_finding("optim.master_weights", message, fix))
    return found


def _finding(field: str, message: str, fix: str) -> Finding:
    return Finding("contradiction", message, file=FILE, field=field, fix=fix)


def _fields(spec: Spec) -> Iterator[Finding]:
    method = spec.method
    for name in type(method).model_fields:
        wanted, given = name in FIELDS[method.type], getattr(method, name) is not None
        if name == "type" or wanted == given:
            continue
        if wanted:
            message = f"is null, and method.type {method.type} needs it"
            yield _finding(f"method.{name}", message, "set it")
        else:
            message = f"method.type {method.type} has no {name}"
            yield _finding(f"method.{name}", message, "set it to null")


def _one_document(spec: Spec) -> Iterator[Finding]:
    kind = spec.method.type
    if spec.data.packing:
        message = f"virtual tokens belong to one document, and {kind} would share them in a row"
        yield _finding("data.packing", message, "data.packing=false, or method=lora")
    if spec.batch.attention == "documents":
        message = f"attention by document knows nothing of the virtual tokens of {kind}"
        yield _finding("batch.attention", message, "batch.attention=mask")
        if spec.batch.layout == "padding_free":  # else told only once the attention is a mask
            message = f"padding_free needs attention by document, which {kind} cannot have"
            yield _finding("batch.layout", message, "batch.layout=rows")
    if spec.activations.checkpointing != "none":
        message = f"blocks are not computed again with {kind}: a prefix would be in the cache twice"
        yield _finding("activations.checkpointing", message, "activations=none, or method=lora")
    if spec.tokenizer.added_tokens:
        message = f"{kind} trains virtual tokens only, not the rows of added ones"
        yield _finding("tokenizer.added_tokens", message, "method=lora, or no added tokens")
