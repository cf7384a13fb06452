"""Stop sequences: which texts end an assistant turn.

They come from the template (the token printed after an answer or a tool call), the tokenizer, the
generation config and `tokenizer.stops`, never from `eos_token` alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hashtune.chat.failures import of_template
from hashtune.chat.messages import ASSISTANT
from hashtune.chat.sentinels import after_fields
from hashtune.chat.template import Template
from hashtune.errors import InputError

USER = {"role": "user", "content": "zquserqz"}
CONTEXTS = ("a", ".")
ANSWER = {"role": ASSISTANT, "content": "zqanswerqz"}
FUNCTION = {"name": "zqfunctionqz", "arguments": {"zqkeyqz": "zqvalueqz"}}
CALL = {
    "role": ASSISTANT,
    "content": "",
    "tool_calls": [{"type": "function", "id": "abcdefghi", "function": FUNCTION}],
}


@dataclass(frozen=True, slots=True)
class StopSet:
    """Texts that end a turn.

    texts[i] encodes to ids[i] (one or several ids); `declared` are the texts of `tokenizer.stops`,
    the first of which is appended where a template prints no stop at all.
    """

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    declared: tuple[str, ...] = ()

    @property
    def single_ids(self) -> list[int]:
        """The stops of one id, ascending: what generation takes as eos_token_id."""
        return sorted({ids[0] for ids in self.ids if len(ids) == 1})

    def first(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first stop in the text (the longest, where two start together)."""
        spots = [(text.find(stop), -len(stop)) for stop in self.texts]
        found = [spot for spot in spots if spot[0] >= 0]
        if not found:
            return None
        start, length = min(found)
        return start, start - length


def stop_sequences(
    template: Template, *, eos_ids: Sequence[int], declared: Sequence[str]
) -> StopSet:
    """All candidates, in a fixed order: declared, printed by the template, tokenizer, generation.

    Args:
        template: the pinned template.
        eos_ids: end ids of the base's generation config.
        declared: `tokenizer.stops`.

    Raises:
        InputError: the template prints no answer.
    """
    tokenizer = template.tokenizer
    ends = [tokenizer.eos_token] if tokenizer.eos_token else []
    ends += [
        tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        for token in eos_ids
    ]
    printed = _printed(template, [*declared, *ends])
    printed += _after_call(template, [*declared, *printed, *ends])
    texts = [*declared, *printed, *ends]
    unique = tuple(dict.fromkeys(text for text in texts if text))
    return StopSet(unique, tuple(_ids(template, text) for text in unique), tuple(declared))


def _ids(template: Template, text: str) -> tuple[int, ...]:
    """The ids of a stop behind an answer. Alone a text may have others: SentencePiece puts a blank
    before it."""
    alone = template.encode(text)
    for answer in CONTEXTS if len(alone) > 1 else ():
        before, both = template.encode(answer), template.encode(answer + text)
        if both[: len(before)] == before:
            return tuple(both[len(before) :])
    return tuple(alone)


def _printed(template: Template, known: Sequence[str]) -> list[str]:
    """The first control token that the template prints after an answer (special ones first).

    None where a known stop already ends an answer inside a conversation: what precedes it there
    (`<|END_RESPONSE|>`) is part of the answer. An EOS after the very last answer proves nothing.

    Raises:
        InputError: the template does not print an answer to a question; the finding names it.
    """
    try:
        tail = after_fields(template, [USER], ANSWER, following=None)
    except InputError as error:
        raise InputError([of_template(found, template.name) for found in error.findings]) from error
    try:
        between = after_fields(template, [USER], ANSWER, following=USER)
    except InputError:  # it takes one question only: nothing follows an answer
        between = ""
    if any(text in between for text in known):
        return []
    places = [
        (not special, tail.find(token), -len(token), token)
        for token, special in template.added_tokens
        if token in tail
    ]
    return [min(places)[-1]] if places else []


def _after_call(template: Template, known: Sequence[str]) -> list[str]:
    """The last special token that the template prints after a tool call (`<|call|>`, `<|eom_id|>`),
    where no known stop is among them and the template prints calls at all."""
    try:
        tail = after_fields(template, [USER], CALL, following=None)
    except InputError:
        return []
    if any(text in tail for text in known):
        return []
    places = [
        (tail.rfind(token) + len(token), len(token), token)
        for token, special in template.added_tokens
        if special and token in tail
    ]
    return [max(places)[-1]] if places else []
