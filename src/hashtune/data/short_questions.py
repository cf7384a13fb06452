"""Questions too short for a run of n words, found whole inside a train text.

A question of fewer than n words shares no run of n words with anything, and equals a train text
only where that is nothing else. It is in a train text as well when all its words stand there in
their order, signs of arithmetic included and punctuation left out; given that it has more than n/2
words and MIN_CHARS characters, and that no other item of its set asks something else with it: a
shorter one, or a turn of many conversations ("can you say that again please"), is a common phrase.
"""

from collections.abc import Callable, Iterator, Sequence

from hashtune.data.words import SIGNS, words, words_and_signs

MIN_CHARS = 20
Owner = tuple[str, int]  # set name, item number
Run = tuple[str, ...]


def is_evidence(text: str, n: int) -> bool:
    """Whether a normalised question tells by itself where it comes from, wherever it stands."""
    return len(words(text)) > n // 2 and len(text) >= MIN_CHARS


class ShortQuestions:
    """Who asks which short question; found by the question's first words."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._least = n // 2 + 1  # words
        self._by_start: dict[Run, dict[Run, list[Owner]]] = {}

    def add(self, owner: Owner, text: str) -> None:
        """A normalised question; one that is long enough for a run of n words, or too short to be
        evidence, is left out."""
        if not is_evidence(text, self._n) or len(words(text)) >= self._n:
            return
        run = words_and_signs(text)
        while run[0] in SIGNS:  # the dash of a list
            del run[0]
        while run[-1] in SIGNS:
            del run[-1]
        owners = self._by_start.setdefault(tuple(run[: self._least]), {})
        owners.setdefault(tuple(run), []).append(owner)

    def leave_phrases_out(self, texts_of: Callable[[Owner], Sequence[str]]) -> None:
        """Forget what several items of one set ask that are not the same item; `texts_of` gives
        all questions of an item."""
        for start, runs in list(self._by_start.items()):
            own = {run: owners for run, owners in runs.items() if _of_one(owners, texts_of)}
            self._by_start[start] = own
            if not own:
                del self._by_start[start]

    def found_in(self, tokens: Sequence[str], *, take: bool) -> Iterator[tuple[Owner, str]]:
        """Whose questions stand in the words and signs of a text, and their words; with `take` they
        are forgotten."""
        if not self._by_start:
            return
        starts = list(zip(*(tokens[place:] for place in range(self._least)), strict=False))
        if self._by_start.keys().isdisjoint(starts):
            return
        for place, start in enumerate(starts):
            runs = self._by_start.get(start, {})
            for run in [run for run in runs if tuple(tokens[place : place + len(run)]) == run]:
                yield from ((owner, " ".join(run)) for owner in runs[run])
                if take:
                    del runs[run]


def _of_one(owners: Sequence[Owner], texts_of: Callable[[Owner], Sequence[str]]) -> bool:
    items = {(owner[0], *texts_of(owner)) for owner in owners}
    return len(items) == len({name for name, _ in owners})
