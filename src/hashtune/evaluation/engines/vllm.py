"""vLLM as the engine: optional, for GPUs. Its one version decides the bits, so the code pins it.

It gets token ids that our template rendered and gives token ids back; stops are cut and texts
decoded by the same code as for the default engine. Prompts go to it in the frozen batch plan, but
inside a call it schedules by itself, so expect a noise floor above 0. It serves a base alone or
with LoRA; other adapters and added tokens are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.evaluation.choices import Question, choice_ids
from hashtune.evaluation.generate import (
    Answer,
    Progress,
    batch_plan,
    cut_at_stop,
    decoded,
    rendered_prompts,
)
from hashtune.records import Message
from hashtune.spec.metric_packages import engine_findings

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.evaluation.kept import Kept
    from hashtune.spec.schema import Spec
    from hashtune.store.manifest import Manifest

DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16"}
FIELD: Final = "evaluation.engine"
RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what max_lora_rank may be


@dataclass(frozen=True, slots=True)
class VllmEngine:
    """An Engine (see engines.base) over vllm.LLM.

    `vllm` is the module; `adapter` a LoRARequest or None; `stops` are ids, one tuple each.
    """

    vllm: Any
    llm: Any
    adapter: Any
    template: "Template"
    stops: Sequence[tuple[int, ...]]

    def answers(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        max_new_tokens: int,
        batch_size: int,
        progress: Progress,
        kept: "Kept | None" = None,
    ) -> list[Answer]:
        """Greedy answers. Stops of one token end a row; those of several are cut afterwards."""
        prompts = rendered_prompts(self.template, conversations)
        settings = self.vllm.SamplingParams(
            temperature=0.0,
            max_tokens=max_new_tokens,
            stop_token_ids=[stop[0] for stop in self.stops if len(stop) == 1],
            ignore_eos=True,  # the stops are ours, pinned with the template
            detokenize=False,
        )
        written: dict[int, list[int]] = {}
        plan = batch_plan([len(prompt) for prompt in prompts], batch_size=batch_size)
        for batch in progress(plan, total=len(plan), label="answers, in batches"):
            rows = [prompts[index] for index in batch]
            what = {"answers": rows, "stops": self.stops, "max_new_tokens": max_new_tokens}
            make = partial(self._written, rows, settings)
            made = make() if kept is None else kept.batch(what, make)
            written.update(zip(batch, made, strict=True))
        tokenizer = self.template.tokenizer
        return [decoded(tokenizer, written[index], self.stops) for index in range(len(prompts))]

    def _written(self, rows: Sequence[list[int]], settings: Any) -> list[list[int]]:
        outputs = self._run(rows, settings)
        return [cut_at_stop(list(of.outputs[0].token_ids), self.stops) for of in outputs]

    def likelihoods(
        self,
        questions: Sequence[Question],
        *,
        batch_size: int,
        progress: Progress,
        kept: "Kept | None" = None,
    ) -> list[list[float]]:
        """Sums of the log-probabilities that vLLM gives for the tokens of a prompt."""
        asked = [choice_ids(self.template, question) for question in questions]
        flat = [(prompt, ids) for prompt, choices in asked for ids in choices]
        plan = batch_plan([len(a) + len(b) for a, b in flat], batch_size=batch_size)
        settings = self.vllm.SamplingParams(
            temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False
        )
        sums: dict[int, str] = {}
        for batch in progress(plan, total=len(plan), label="choices, in batches"):
            rows = [flat[index] for index in batch]
            make = partial(self._sums, rows, settings)
            made = make() if kept is None else kept.batch({"choices": rows}, make)
            sums.update(zip(batch, made, strict=True))
        values = iter(float.fromhex(sums[index]) for index in range(len(flat)))
        return [[next(values) for _ in choices] for _, choices in asked]

    def _sums(self, rows: Sequence[tuple[list[int], list[int]]], settings: Any) -> list[str]:
        outputs = self._run([prompt + ids for prompt, ids in rows], settings)
        return [
            float(sum(_of_tokens(of.prompt_logprobs, len(prompt), ids))).hex()
            for of, (prompt, ids) in zip(outputs, rows, strict=True)
        ]

    def _run(self, rows: Sequence[list[int]], settings: Any) -> list[Any]:
        prompts = [{"prompt_token_ids": row} for row in rows]
        return list(self.llm.generate(prompts, settings, lora_request=self.adapter, use_tqdm=False))


def _of_tokens(
    found: Sequence[Mapping[int, Any] | None], start: int, ids: Sequence[int]
) -> list[float]:
    """The log-probability of each id; the place of a prompt's first token holds None."""
    return [float((found[start + at] or {})[token].logprob) for at, token in enumerate(ids)]


def open_vllm(
    manifest: "Manifest", adapter: Path | None, spec: "Spec", *, root: Path
) -> VllmEngine:
    """Load base and adapter into vLLM. Arguments as `engines.base.open_engine`.

    Raises:
        InputError: vLLM is not there in its one version; an adapter that it cannot serve.
    """
    if findings := [*engine_findings(spec.evaluation.engine), *adapter_findings(adapter, spec)]:
        raise InputError(findings)
    from hashtune.evaluation.models import open_tokens
    from hashtune.store.loader import materialise

    vllm = import_module("vllm")
    template, stops = open_tokens(manifest, spec.tokenizer, root=root)
    llm = vllm.LLM(
        model=str(materialise(manifest)),
        skip_tokenizer_init=True,
        dtype=DTYPES[spec.evaluation.base_precision],
        seed=0,
        max_num_seqs=spec.evaluation.batch_size,
        enable_lora=adapter is not None,
        **({} if adapter is None else {"max_lora_rank": _room(_config(adapter))}),
        enable_prefix_caching=False,  # a reused prefix is another batch plan
        trust_remote_code=False,
    )
    request = None
    if adapter is not None:
        lora = import_module("vllm.lora.request")
        request = lora.LoRARequest("adapter", 1, str(adapter.resolve()))
    ends = [(stop,) if isinstance(stop, int) else tuple(stop) for stop in stops]
    return VllmEngine(vllm, llm, request, template, ends)


def adapter_findings(adapter: Path | None, spec: "Spec") -> list[Finding]:
    """What vLLM does not serve: full weights, prompts, prefixes, DoRA, added tokens, ranks above
    512."""
    findings = []
    fix = "evaluation.engine=transformers"
    if spec.tokenizer.added_tokens:
        message = "vLLM serves no rows of added tokens"
        findings.append(Finding("engine-adapter", message, field=FIELD, fix=fix))
    if adapter is None:
        return findings
    config = _config(adapter)
    if config.get("peft_type") != "LORA" or config.get("use_dora"):
        file = (adapter / "adapter_config.json").as_posix()
        message = "vLLM serves LoRA without DoRA, and this adapter is another kind"
        findings.append(Finding("engine-adapter", message, file, field=FIELD, fix=fix))
    elif _rank(config) > RANKS[-1]:
        message = f"vLLM serves ranks up to {RANKS[-1]}, and this adapter has {_rank(config)}"
        findings.append(Finding("engine-adapter", message, field=FIELD, fix=fix))
    return findings


def _rank(config: Mapping[str, Any]) -> int:
    return max(map(int, (config["r"], *(config.get("rank_pattern") or {}).values())))


def _room(config: Mapping[str, Any]) -> int:
    return next(rank for rank in RANKS if rank >= _rank(config))


def _config(adapter: Path) -> Mapping[str, Any]:
    file = adapter / "adapter_config.json"
    found = writers.read_json(file) if file.is_file() else {}
    return found if isinstance(found, dict) else {}
