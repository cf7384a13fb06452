"""The proof of a mask: every example is derived a second time, another way, and compared.

Texts come from second.py, ranges of tokens from the backend's own encoding, and the trained ids are
decoded. Cost: one or two renders, a prompt per trained turn and one encoding per example.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, count, groupby, islice
from typing import Any

from hashtune.chat.control import MARK
from hashtune.chat.second import REWRITES, Expected, expect, expect_rebuilt
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import Finding
from hashtune.records import IGNORE_INDEX, Example, Message


def prove(
    template: Template,
    messages: Sequence[Message],
    example: Example,
    *,
    turns: Sequence[int],
    stops: StopSet,
    rebuilt: bool = False,
) -> list[Finding]:
    """Compare an example with its second derivation; an empty list means that they agree.

    Args:
        template: the pinned template.
        messages: the messages that the example covers.
        example: ids and labels to prove.
        turns: which assistant messages must be trained, ascending.
        stops: what ends a turn.
        rebuilt: the text is prompt, content and stop, not a render (as_prompted).
    """
    derive = expect_rebuilt if rebuilt else expect
    expected = derive(template, messages, turns, stops, example.input_ids)
    if isinstance(expected, str):
        where = f"messages[{turns[-1]}]"
        if expected == REWRITES:
            fix = "pin a template that prints contents as they are"
            return [Finding("rewritten", expected, field=where, fix=fix)]
        return [Finding("proof", expected, field=where)]
    found = [_fault(text, turns[-1]) for text in _beginning(template, example.input_ids)]
    if not found and _plainly_right(template, example, expected, stops):
        return []
    encoded = template.encoding(expected.text)
    return found + _faults(template, example, expected, encoded, turns=turns, stops=stops)


def _plainly_right(
    template: Template, example: Example, expected: Expected, stops: StopSet
) -> bool:
    """Whether the ids are those of the text, and the bytes of the trained runs and of what lies
    between them spell it, cut at the expected places.

    False proves no fault: tokens across a boundary and other tokenizers than byte-level ones are
    for _faults.
    """
    text, ids, labels = expected.text, example.input_ids, example.labels
    if template.pieces is None or len(labels) != len(ids) or template.ids(text) != ids:
        return False
    spelled = partial(_spells, template.pieces)
    token = place = 0  # how far ids and text are read
    for start, end in expected.spans:
        first, past = _next_run(labels, token)
        run, answer = ids[first:past], text[start:end]
        if labels[first:past] != run or not _ends_in_stop(run, stops) or answer in stops.texts:
            return False
        if not (spelled(ids[token:first], text[place:start]) and spelled(run, answer)):
            return False
        token, place = past, end
    nothing_left = _next_run(labels, token)[0] == len(ids)
    return nothing_left and spelled(ids[token:], text[place:])


def _next_run(labels: list[int], begin: int) -> tuple[int, int]:
    """The first maximal run of trained labels from `begin` on, as [first, past); empty at the end
    where there is none."""
    trained = map(IGNORE_INDEX.__ne__, islice(labels, begin, None))
    first = next(compress(count(begin), trained), len(labels))
    try:
        return first, labels.index(IGNORE_INDEX, first)
    except ValueError:
        return first, len(labels)


def _spells(pieces: Mapping[int, bytes], ids: list[int], text: str) -> bool:
    """Whether the ids stand for exactly this text."""
    return b"".join(map(pieces.__getitem__, ids)) == text.encode("utf-8")


def _faults(
    template: Template,
    example: Example,
    expected: Expected,
    encoded: Any,
    *,
    turns: Sequence[int],
    stops: StopSet,
) -> list[Finding]:
    if len(example.labels) != len(example.input_ids):
        return [_fault("labels and ids differ in number", turns[-1])]
    text = _other_ids(encoded.ids, example) or _other_labels(example)
    if text:
        return [_fault(text, turns[-1])]
    found = []
    runs = _runs(example.labels)
    if len(runs) != len(turns):
        text = f"{len(runs)} trained spans, expected {len(turns)} (template {template.name})"
        found.append(_fault(text, turns[-1]))
    for run, turn, (start, end) in zip(runs, turns, expected.spans, strict=False):
        first, last = (_core(template, expected.text, encoded, run[at]) for at in (0, -1))
        seen = expected.text[first[0] : last[1]]
        eaten = _eaten(template, expected.text, encoded, run[0], start)
        wanted = expected.text[start + eaten : end]
        if seen != wanted:
            text = f"trained is {seen[:60]!r}, expected {wanted[:60]!r}"
            found.append(_fault(text, turn))
        ids = [example.input_ids[index] for index in run]
        if seen in stops.texts and expected.text[start:end].strip() != seen:
            text = "no token of the answer is trained: it merges with the end of the prompt"
            found.append(_fault(text, turn))
        found += _ending(template, ids, stops, turn)
        found += [_fault(text, turn) for text in _decoding(template, ids, seen)]
    return found


def _fault(text: str, turn: int) -> Finding:
    return Finding("proof", text, field=f"messages[{turn}]")


def _beginning(template: Template, ids: list[int]) -> Iterable[str]:
    """Exactly one BOS where the tokenizer wants one, never two."""
    bos, name, wanted = template.bos
    if bos is None:
        return
    if ids[:2] == [bos, bos]:
        yield f"begins with BOS ({name!r}) twice"
    if wanted and ids[:1] != [bos]:
        yield f"does not begin with BOS ({name!r})"


def _other_ids(wanted: Sequence[int], example: Example) -> str | None:
    if list(wanted) == example.input_ids:
        return None
    pairs = zip(wanted, example.input_ids, strict=False)
    at = next((i for i, (one, two) in enumerate(pairs) if one != two), "the end")
    return f"the ids differ from those of the render at token {at}"


def _other_labels(example: Example) -> str | None:
    pairs = zip(example.labels, example.input_ids, strict=True)
    odd = [i for i, (label, token) in enumerate(pairs) if label not in (IGNORE_INDEX, token)]
    return f"the label at token {odd[0]} is neither its id nor -100" if odd else None


def _runs(labels: Sequence[int]) -> list[list[int]]:
    """Token indices of each maximal run of trained labels."""
    groups = groupby(range(len(labels)), lambda index: labels[index] != IGNORE_INDEX)
    return [list(group) for trained, group in groups if trained]


def _begin(encoded: Any, index: int) -> int:
    """Where a token begins; one whose piece has a leading blank begins where the last one ended."""
    start = int(encoded.offsets[index][0])
    if index and encoded.tokens[index][0] in "ĠĊĉč▁ ":
        return min(start, int(encoded.offsets[index - 1][1]))
    return start


def _core(template: Template, text: str, encoded: Any, index: int) -> tuple[int, int]:
    """Where a token begins and ends, without blanks that an added token takes beside it."""
    start, end = _begin(encoded, index), int(encoded.offsets[index][1])
    own, _ = template.stripping.get(encoded.ids[index], ("", False))
    if not own or own not in text[start:end]:
        return start, end
    at = text.index(own, start)
    return at, at + len(own)


def _eaten(template: Template, text: str, encoded: Any, first: int, start: int) -> int:
    """Characters of the turn that the token before the run holds, if it began in the prompt."""
    if not first or _begin(encoded, first - 1) >= start:
        return 0
    end = int(encoded.offsets[first - 1][1])
    if template.stripping.get(encoded.ids[first - 1], ("", False))[1]:  # offsets may be trimmed
        end = len(text) - len(text[end:].lstrip())
    return max(0, end - start)


def _ending(template: Template, ids: list[int], stops: StopSet, turn: int) -> Iterable[Finding]:
    if _ends_in_stop(ids, stops):
        return
    last = template.tokenizer.decode(ids[-1:], skip_special_tokens=False)
    text = f"last supervised token is {last!r}, expected one of {list(stops.texts)}"
    written = template.tokenizer.decode(ids, skip_special_tokens=False)
    several = [stop for stop, own in zip(stops.texts, stops.ids, strict=True) if len(own) > 1]
    if merged := next((stop for stop in several if written.endswith(stop)), None):
        text += f": the tokens of {merged!r} merge with the end of the answer, so generation would "
        text += "not see it"
        fix = "strip the answer's blanks in the data, or make the stop one token "
        fix += "(tokenizer.added_tokens)"
        yield Finding("stop-merged", text, field=f"messages[{turn}].content", fix=fix)
    else:
        yield _fault(text, turn)


def _ends_in_stop(ids: list[int], stops: StopSet) -> bool:
    return any(tuple(ids[-len(stop) :]) == stop for stop in stops.ids)


def _decoding(template: Template, ids: list[int], seen: str) -> Iterable[str]:
    """The ids, decoded, give the text (blanks aside, and after the tokenizer's normalisation)."""
    decoded = template.tokenizer.decode(
        ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    normalizer = template.tokenizer.backend_tokenizer.normalizer
    seen = seen.replace(MARK, "")
    for token, _ in template.added_tokens:  # a decoder of words reads their ▁ as a blank
        if "▁" in token:
            seen, decoded = (
                text.replace(token, token.replace("▁", " ")) for text in (seen, decoded)
            )
    plain = normalizer.normalize_str(seen) if normalizer else seen
    if "".join(decoded.split()) not in ("".join(seen.split()), "".join(plain.split())):
        yield f"the trained ids decode to {decoded[:60]!r}, the text is {seen[:60]!r}"
