"""Plain text for continued pretraining: the tokenizer's own ids and EOS, loss on every token.

    text "hi", tokenizer with BOS      input_ids   <s>   h   i  </s>
                                       labels     -100   h   i  </s>

The first token of a document has no label: nothing precedes it, so nothing predicts it, and what
tokenize counts as trained is what pack and the loss count. No chat template is applied.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from hashtune.chat.examples import Tokenized
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, TEXT, Conversation, Example

FIELD = "text"
Tokenize = Callable[[Conversation], Tokenized]


def by_kind(conversation: Conversation, *, chat: Tokenize, text: Tokenize) -> Tokenized:
    """Tokenize a row by the way for its kind."""
    messages = conversation.messages
    return (text if messages and messages[0].get("role") == TEXT else chat)(conversation)


def tokenize_text(conversation: Conversation, template: Template, *, cut: int | None) -> Tokenized:
    """The example of a plain text, or its pieces of at most `cut` (at least 2) tokens, proven.

    A piece begins with the last token of the one before it, without a label, so that each token
    but the first is trained exactly once.

    Raises:
        InputError: the text holds a control token, the tokenizer has no EOS, or the proof fails.
    """
    text = conversation.messages[0]["content"]
    found = _refused(template, text)
    examples: list[Example] = []
    if not found:
        pieces = _pieces(conversation.id, _ids(template, text), cut)
        examples = [
            Example(name, conversation.id, conversation.source, ids, [IGNORE_INDEX, *ids[1:]])
            for name, ids in pieces
        ]
        found = prove_text(template, text, examples)
    if found:
        file, line = conversation.source, conversation.line
        raise InputError(replace(finding, file=file, line=line) for finding in found)
    altered = [] if _read(template, _joined(examples)) == text else [FIELD]
    return Tokenized(examples, len(examples), altered, text=True)


def _refused(template: Template, text: str) -> list[Finding]:
    """A special token inside a text would be read as one; `<think>` and its like are text."""
    fix = "remove or reword it in the data"
    found = [
        Finding("control-token", f"holds the control token {token!r}", field=FIELD, fix=fix)
        for token, special in template.added_tokens
        if special and token in text
    ]
    if template.tokenizer.eos_token_id is None:
        said = "the base's tokenizer names no EOS, so a text would not end"
        found.append(Finding("no-eos", said, field="tokenizer", fix="choose another base"))
    return found


def _ids(template: Template, text: str) -> list[int]:
    """What the tokenizer puts before any text (its BOS, or nothing), the text, EOS."""
    probe = template.tokenizer.backend_tokenizer.encode("x")
    begin = probe.ids[: probe.special_tokens_mask.index(0)]
    return [*begin, *template.ids(text), template.tokenizer.eos_token_id]


def _pieces(name: str, ids: list[int], cut: int | None) -> list[tuple[str, list[int]]]:
    if cut is None or len(ids) <= cut:
        return [(name, ids)]
    starts = range(0, len(ids) - 1, max(1, cut - 1))
    return [(f"{name}.{n}", ids[start : start + cut]) for n, start in enumerate(starts, 1)]


def prove_text(template: Template, text: str, examples: Sequence[Example]) -> list[Finding]:
    """Compare the pieces of a text with a second derivation; an empty list means that they agree.

    Joined again, the ids must begin and end as they should, read as the text, and be what
    transformers itself makes of it; each label must be its token, and the first one -100.
    """
    ids = _joined(examples)
    said = [*_edges(template, ids), *_joints(examples), *_labels(examples)]
    said = said or [*_reading(template, ids, text)] or [*_other_ids(template, ids, text)]
    return [Finding("proof", message, field=FIELD) for message in said]


def _joined(examples: Sequence[Example]) -> list[int]:
    first = examples[0].input_ids[:1]
    return first + [token for example in examples for token in example.input_ids[1:]]


def _edges(template: Template, ids: list[int]) -> Iterator[str]:
    """Exactly one BOS where the tokenizer adds one, EOS at the end and nowhere else."""
    tokenizer = template.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    wanted = bos is not None and tokenizer("x", verbose=False)["input_ids"][0] == bos
    if wanted and ids[0] != bos:
        yield f"does not begin with BOS ({tokenizer.bos_token!r})"
    if bos is not None and ids[:2] == [bos, bos]:
        yield f"begins with BOS ({tokenizer.bos_token!r}) twice"
    if ids[-1] != eos:
        yield f"does not end with EOS ({tokenizer.eos_token!r})"


def _joints(examples: Sequence[Example]) -> Iterator[str]:
    for number, (one, other) in enumerate(pairwise(examples), 2):
        begins, ended = other.input_ids[0], one.input_ids[-1]
        if begins != ended:
            yield f"piece {number} begins with {begins}, the one before it ends with {ended}"


def _labels(examples: Sequence[Example]) -> Iterator[str]:
    for example in examples:
        ids, labels = example.input_ids, example.labels
        if len(ids) != len(labels):
            yield f"{len(labels)} labels for {len(ids)} ids"
        elif labels[0] != IGNORE_INDEX:
            yield f"label 0 is {labels[0]}, nothing predicts it"
        elif labels[1:] != ids[1:]:
            at = next(n for n in range(1, len(ids)) if labels[n] != ids[n])
            yield f"label {at} is {labels[at]}, its id is {ids[at]}"


def _reading(template: Template, ids: list[int], text: str) -> Iterator[str]:
    """The text, blanks aside, as it is or after the tokenizer's normalisation."""
    read = _read(template, ids)
    normalizer = template.tokenizer.backend_tokenizer.normalizer
    plain = normalizer.normalize_str(text) if normalizer else text
    if "".join(read.split()) not in ("".join(text.split()), "".join(plain.split())):
        yield f"the ids read {read[:60]!r}, the text is {text[:60]!r}"


def _read(template: Template, ids: list[int]) -> str:
    """The text without BOS and EOS: it holds no other special token."""
    return str(
        template.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def _other_ids(template: Template, ids: list[int], text: str) -> Iterator[str]:
    own = template.tokenizer(text, verbose=False)["input_ids"]
    own = own if own[-1:] == ids[-1:] else [*own, ids[-1]]
    if own != ids:
        pairs = zip(own, ids, strict=False)
        at = next((n for n, (one, two) in enumerate(pairs) if one != two), "the end")
        yield f"the ids differ from the tokenizer's own at token {at}"
