"""The model card of a released adapter: what it is, what proved it, how to load it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hashtune.spec.methods import FULL

LOAD = (
    "In the root of a clone of the project (the base is the pinned one, fetched if it is missing):"
)
FULL_LOAD = """The folder is a whole model: it needs neither the base nor PEFT, and the base's
license goes with it. In the root of a clone of the project:"""

SNIPPET = """import subprocess, peft, transformers
base_dir = subprocess.check_output(["hashtune", "base"], text=True).strip()
tokenizer = transformers.AutoTokenizer.from_pretrained("{folder}")
model = transformers.AutoModelForCausalLM.from_pretrained(base_dir, dtype="{dtype}")
{grow}model = peft.PeftModel.from_pretrained(model, "{folder}")
"""
FULL_SNIPPET = """import transformers
tokenizer = transformers.AutoTokenizer.from_pretrained("{folder}")
model = transformers.AutoModelForCausalLM.from_pretrained("{folder}", dtype="{dtype}")
"""
# the adapter brings the rows of its added tokens; the base needs the room for them
GROW = """rows = 1 + max(tokenizer.convert_tokens_to_ids({added}))
if rows > model.get_input_embeddings().num_embeddings:
    model.resize_token_embeddings(rows, mean_resizing=False)
"""


def model_card(entry: Mapping[str, Any], *, folder: str) -> str:
    """Markdown with a front matter that Hugging Face tools read.

    Args:
        entry: from build_entry.
        folder: where the adapter lies, relative to the project root.
    """
    base, spec = entry["base"], entry["spec"]
    rules = "\n".join(
        f"| {rule['name']} | {_number(rule['value'])} | {_number(rule['threshold'])} "
        f"| {rule['items']} | {rule['verdict']} |"
        for rule in entry["evidence"]["rules"]
    )
    method = spec["method"]
    added = spec["tokenizer"]["added_tokens"]
    grow = GROW.format(added=added) if added else ""
    start = entry["training"]["init_adapter"]
    began = f"It continued from an adapter whose weights have sha256 {start}. " if start else ""
    if branch := entry["training"]["branch"]:
        began += (
            f"Its first {branch['step']} steps are those of the run {branch['parent']}, whose "
            f"kept state has sha256 {branch['sha256']}. "
        )
    names = [name for name in dict.fromkeys([method["type"], method["variant"]]) if name]
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[spec["evaluation"]["base_precision"]]
    full = method["type"] == FULL
    load = FULL_LOAD if full else LOAD
    snippet = (FULL_SNIPPET if full else SNIPPET).format(folder=folder, dtype=dtype, grow=grow)
    return f"""---
{_metadata(entry, names)}
---

# {entry["name"]}: {entry["run"]}

{_what(method, names)} {base["name"]}
({base["source"]["repo"]} at {base["source"]["revision"]}), trained for {entry["checkpoint_step"]}
steps. {began}Verdict of its gate: **{entry["verdict"]}**.

| rule | value | threshold | items | verdict |
|---|--:|--:|--:|---|
{rules}

## Load it

{load}

```python
{snippet}```

Chat template, stop tokens and tokenizer are the ones it was trained with; they lie beside the
weights. `entry.json` in the registry names every input by hash; `hashtune verify` on the tagged
commit rebuilds it. {guarantee(spec)}
"""


def _metadata(entry: Mapping[str, Any], tags: Sequence[str]) -> str:
    """The front matter, by the library of the hub: its keys and model-index are what the hub and
    its tools read."""
    from huggingface_hub import EvalResult, ModelCardData

    spec, base = entry["spec"], entry["base"]["source"]
    full = spec["method"]["type"] == FULL
    data = spec["data"]["name"]
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=data,
            dataset_name=f"{data}, held-out test split",
            metric_type=rule["name"].removeprefix("task.").removesuffix(".score"),
            metric_value=rule["value"],
        )
        for rule in entry["evidence"]["rules"]
        if rule["name"].startswith("task.") and rule["name"].endswith(".score")
    ]
    card = ModelCardData(
        library_name="transformers" if full else "peft",
        base_model=base["repo"],
        base_model_relation="finetune" if full else "adapter",
        pipeline_tag="text-generation",
        tags=[*tags, "hashtune"],
        model_name=entry["name"] if results else None,
        eval_results=results or None,
    )
    return str(card.to_yaml(line_break="\n"))


def guarantee(spec: Mapping[str, Any]) -> str:
    """One sentence: where the rebuild has the same bits, and where it has not."""
    rules = spec["determinism"]
    if rules["mode"] != "strict":
        return "No bits are promised: it was trained with determinism.mode off."
    if spec["device"] == "cuda":
        where = "the same kind of GPU and driver"
    else:
        where = f"the same kind of CPU, with the {rules['threads']} threads of the spec"
    return (
        f"With the locked libraries the weights have the same bits on {where}; on other hardware "
        "the inputs are the same, and the weights differ in their last digits."
    )


def _what(method: Mapping[str, Any], names: Sequence[str]) -> str:
    """What the artifact is, up to the name of the base."""
    if method["type"] == FULL:
        return "A full set of weights, no adapter (fp32, every parameter trained), from"
    return f"A {' '.join(names)} adapter ({_size(method)}) over"


def _size(method: Mapping[str, Any]) -> str:
    """What the adapter is made of: matrices of a rank, or virtual tokens."""
    if method["virtual_tokens"] is not None:
        return f"{method['virtual_tokens']} virtual tokens"
    return f"r {method['r']}, alpha {method['alpha']:g}"


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
