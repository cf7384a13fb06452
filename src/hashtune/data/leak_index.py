"""What the held-out side says, by whole text and by runs of n words, and who finds it in a text.

Questions are user texts; short_questions.py finds those that are shorter than such a run. One that
is a train row's whole text counts at any length where users ask it, elsewhere only where it is long
enough to be no label. A reference answer alone is evidence only where it is long enough: of at
least n words, and not shared by several rows of its set. An answer that is JSON counts by the texts
in it, so that labels of a closed set, which every row has by design, are none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from hashtune.data.cleaning import normalise
from hashtune.data.json_texts import texts
from hashtune.data.short_questions import Owner, ShortQuestions, is_evidence
from hashtune.data.words import without_signs, words, words_and_signs
from hashtune.strict_json import StrictJsonError, parse_strict

What = Literal["question", "answer"]
USER = "user"
# no sign that could belong to a number
AROUND = " .,;:!?\"'()[]…¿¡“”„‘’‚«»‹›。、，；：！？「」『』"
Key = TypeVar("Key", str, tuple[str, ...])


class Item(NamedTuple):
    """A held-out item or a train row: where it stands, its user texts, its other texts as (kind,
    text), and its reference answers."""

    file: str
    line: int
    texts: list[str]
    others: Sequence[tuple[str, str]] = ()
    answers: Sequence[str] = ()


class Hit(NamedTuple):
    """What a train row gives away: how it is told, the shared words, and of what, in which text."""

    how: Literal["exact", "ngram"]
    row: Item
    shared: str
    what: What
    where: str


class Index(NamedTuple):
    """Who holds a text, a run of words, or a short question."""

    what: What
    exact: dict[str, list[Owner]]
    grams: dict[tuple[str, ...], list[Owner]]
    short: ShortQuestions


def indexes(held_out: Mapping[str, Sequence[Item]], n: int) -> tuple[Index, Index]:
    """Of the questions and of the answers of all sets."""
    short, none = ShortQuestions(n), ShortQuestions(n)
    questions, answers = Index("question", {}, {}, short), Index("answer", {}, {}, none)
    for name, items in held_out.items():
        for number, item in enumerate(items):
            _add(questions, (name, number), item.texts, n)
            _add(answers, (name, number), list(_evidence(item.answers, n)), n)
            for text in dict.fromkeys(map(normalise, item.texts)):
                short.add((name, number), text)
    short.leave_phrases_out(lambda owner: held_out[owner[0]][owner[1]].texts)
    return questions, Index("answer", _of_one(answers.exact), _of_one(answers.grams), none)


def hits(item: Item, held: Sequence[Index], n: int, *, take: bool) -> Iterator[tuple[Owner, Hit]]:
    """Who of the held-out side is in this train row. What matched leaves the index with `take`: its
    owners are known, so a phrase that both sides repeat costs its owners once, not once per row."""
    for where, text in [*((USER, text) for text in item.texts), *item.others]:
        form = normalise(text)
        tokens, whole = words_and_signs(form), _whole(form)
        grams = list(_grams(without_signs(tokens), n))
        # asked as it is, any question leaks; as an answer, "pending transfer" is a label
        counts = where == USER or is_evidence(form, n)
        for index in held:
            for owner in _holders(index.exact, whole, take=take) if counts else ():
                yield owner, Hit("exact", item, form, index.what, where)
            for owner, shared in index.short.found_in(tokens, take=take):
                yield owner, Hit("ngram", item, shared, index.what, where)
            if index.grams.keys().isdisjoint(grams):
                continue
            for gram in grams:
                for owner in _holders(index.grams, gram, take=take):
                    yield owner, Hit("ngram", item, " ".join(gram), index.what, where)


def _holders(of: dict[Key, list[Owner]], key: Key, *, take: bool) -> Sequence[Owner]:
    return of.pop(key, ()) if take else of.get(key, ())


def _whole(text: str) -> str:
    """What makes two normalised texts equal: all but the punctuation around them."""
    return text.strip(AROUND) or text


def _grams(tokens: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(tokens[start:] for start in range(n)), strict=False)


def _add(index: Index, owner: Owner, of_item: Sequence[str], n: int) -> None:
    for text in dict.fromkeys(map(normalise, of_item)):
        _own(index.exact, _whole(text), owner)
        for gram in dict.fromkeys(_grams(words(text), n)):
            _own(index.grams, gram, owner)


def _own(holders: dict[Key, list[Owner]], key: Key, owner: Owner) -> None:
    owners = holders.setdefault(key, [])
    if owner not in owners[-1:]:
        owners.append(owner)


def _evidence(answers: Sequence[str], n: int) -> Iterator[str]:
    for answer in answers:
        for text in _texts_in(answer):
            if len(words(normalise(text))) >= n:
                yield text


def _texts_in(answer: str) -> list[str]:
    if not answer.lstrip().startswith(("{", "[")):
        return [answer]
    try:
        value = parse_strict(answer)
    except StrictJsonError:
        return [answer]
    return [text for _, text in texts(value, "")]


def _of_one(holders: dict[Key, list[Owner]]) -> dict[Key, list[Owner]]:
    """Without what several items of one set hold."""
    return {
        key: owners
        for key, owners in holders.items()
        if len(owners) == len({name for name, _ in owners})
    }
