"""Toy tokenizers whose ids a reader can compute, and small invented templates."""

import csv
import os
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

CHATML = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
PLAIN = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# Reasoning in the last turn only: history prints the bare answer.
THINKER = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.last and not quick %}"
    "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n' }}{% endif %}"
    "{{ m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
# The prompt opens a block that a stored answer does not have; `enable_thinking: false` cures it.
OPENER = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}"
    "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\n' }}{% endif %}"
    "{% endif %}"
)
# The next role's header ends a turn.
HEADERS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "{{ '{' + c.function.name + c.function.arguments|tojson + '}' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TOOLS = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "{{ '<call>' + c.function.name + ' ' + c.function.arguments|tojson + '</call>' }}{% endfor %}"
    "{{ '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
SPECIAL = ("<s>", "<|start|>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", "</s>")


@pytest.fixture(scope="session")
def byte_tokenizer() -> Callable[..., Any]:
    """Make a byte-level tokenizer: one id a byte, plus control tokens and merges as asked.

    Ids 0 to 255 are the bytes in the order of their byte-level letters; then the merges; then the
    control tokens. `trim`: offsets leave out leading blanks, as some tokenizers' do.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    def make(
        *,
        special: Sequence[str] = SPECIAL,
        ordinary: Sequence[str] = ("<think>", "</think>"),
        merges: Sequence[tuple[str, str]] = (),
        split: bool = True,
        trim: bool = False,
        bos: str | None = "<s>",
        eos: str | None = "</s>",
    ) -> Any:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        words = [*letters, *(left + right for left, right in merges)]
        model = models.BPE({word: index for index, word in enumerate(words)}, list(merges))
        backend = Tokenizer(model)
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split)
        backend.decoder = decoders.ByteLevel()
        backend.post_processor = processors.ByteLevel(trim_offsets=trim)
        backend.add_special_tokens([AddedToken(t, normalized=False) for t in special])
        backend.add_tokens([AddedToken(t, normalized=False, special=False) for t in ordinary])
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, bos_token=bos, eos_token=eos, pad_token=eos
        )

    return make


@pytest.fixture(scope="session")
def make_template(byte_tokenizer: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Template of a source text, by default with the byte tokenizer."""
    from hashtune.chat.template import Template

    def make(
        text: str,
        *,
        tokenizer: Any = None,
        stored: bool = False,
        escape: bool = False,
        merge: bool = False,
        **kwargs: Any,
    ) -> Template:
        tokenizer = tokenizer or byte_tokenizer()
        return Template(tokenizer, text, kwargs, "2024-07-26", stored, escape, merge)

    return make


@pytest.fixture(scope="session")
def real(byte_tokenizer: Callable[..., Any], make_template: Callable[..., Any], script: Any) -> Any:
    """A template of a published model by name, with its BOS and EOS, read in place."""
    control = script("template_table").CONTROL

    def make(name: str, *, stored: bool = False, merge: bool = False, **kwargs: Any) -> Any:
        with (SHARED / "SOURCES.tsv").open(encoding="utf-8", newline="") as handle:
            rows = {row["name"]: row for row in csv.DictReader(handle, delimiter="\t")}
        row = rows[name]
        text = (SHARED / f"{name}.jinja").read_bytes().decode("utf-8")
        bos = None if row["bos_token_used"] == "(unset)" else row["bos_token_used"]
        found = sorted({*control.findall(text), row["eos_token_used"], *filter(None, [bos])})
        tokenizer = byte_tokenizer(
            special=[token for token in found if "think" not in token],
            ordinary=[token for token in found if "think" in token],
            bos=bos,
            eos=row["eos_token_used"],
        )
        return make_template(text, tokenizer=tokenizer, stored=stored, merge=merge, **kwargs)

    return make


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """The invented templates by name."""
    names = ("CHATML", "PLAIN", "THINKER", "OPENER", "HEADERS", "TOOLS")
    return {name.lower(): globals()[name] for name in names}


@pytest.fixture(scope="session")
def stops_of() -> Callable[..., Any]:
    """The stop set of a template."""
    from hashtune.chat.stops import stop_sequences

    return lambda template, *declared: stop_sequences(template, eos_ids=[], declared=declared)


def _talk(*contents: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]


@pytest.fixture(scope="session")
def talk() -> Callable[..., list[dict[str, Any]]]:
    """Messages that alternate user, assistant, user, ..."""
    return _talk


@pytest.fixture(scope="session")
def tokenized(stops_of: Callable[..., Any]) -> Callable[..., Any]:
    """Tokenize messages as line 3 of source "triage"."""
    from hashtune.chat.examples import tokenize_conversation
    from hashtune.records import Conversation

    def run(template: Any, messages: list[Any], *declared: str, **policies: Any) -> Any:
        chosen = {"loss_on": "assistant", "unstable": "error", "mismatch": "error", **policies}
        conversation = Conversation("c", "triage", messages, 3)
        stops = stops_of(template, *declared)
        return tokenize_conversation(conversation, template, stops, **chosen)

    return run


CALL = {
    "type": "function",
    "id": "abcdefghi",
    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
}
KINDS: dict[str, list[dict[str, Any]]] = {
    "plain": _talk("hi", "yo", "and?", "ok then"),
    "system": [{"role": "system", "content": "be kind"}, *_talk("hi", "yo")],
    "reasoning": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo", "reasoning_content": "addle"},
    ],
    "tool": [
        *_talk("hi"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "sun"},
        {"role": "assistant", "content": "yo"},
    ],
}


@pytest.fixture(scope="session")
def outcome(real: Any) -> Callable[..., Any]:
    """What becomes of a kind of conversation (or of messages) with a published template and these
    settings: the trained texts, turn by turn, or the first rule that refuses it."""
    from hashtune.chat.examples import tokenize_conversation
    from hashtune.chat.stops import stop_sequences
    from hashtune.errors import InputError
    from hashtune.records import Conversation

    def run(name: str, kind: str | list[Any], settings: dict[str, Any]) -> list[str] | str:
        chosen = {"stops": [], "mismatch": "error", "unstable": "error", "template_kwargs": {}}
        chosen |= settings
        stored = chosen["mismatch"] == "as_stored"
        merge = chosen.get("system") == "merge_into_user"
        messages = KINDS[kind] if isinstance(kind, str) else kind
        template = real(name, stored=stored, merge=merge, **chosen["template_kwargs"])
        try:
            stops = stop_sequences(template, eos_ids=[], declared=chosen["stops"])
            policies = {key: chosen[key] for key in ("unstable", "mismatch")}
            conversation = Conversation("c", "s", messages, 1)
            done = tokenize_conversation(
                conversation, template, stops, loss_on="assistant", **policies
            )
        except InputError as error:
            return error.findings[0].rule
        runs = [
            list(ids)
            for example in done.examples
            for trained, ids in groupby(example.labels, lambda label: label != -100)
            if trained
        ]
        return [template.tokenizer.decode(ids) for ids in runs]

    return run
