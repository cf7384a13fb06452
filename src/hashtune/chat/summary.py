"""What tokenize reports about one split: counts, lengths, and examples as the model sees them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from hashtune.chat.columns import packed
from hashtune.chat.limits import Gains, curve, distribution, limits_report, percentiles
from hashtune.chat.over_length import CUT
from hashtune.records import IGNORE_INDEX, Dropped, Example

SAMPLES = 3
SHOWN_TOKENS = 8
Turns = Sequence[
    tuple[int, int]
]  # an example's trained turns: first token, the one behind the last


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of some conversations; those of chunks add up to those of the split.

    `dropped` counts rows by reason, `lost` examples: a row of which an example is kept is kept.
    `whole` and `split` say of all examples, as they were before any was
    dropped or cut, what limits keep of them: of whole ones, and of such as are cut behind a turn.
    """

    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    whole: Gains = field(default_factory=Gains)
    split: Gains = field(default_factory=Gains)

    def add(self, other: "Tally") -> None:
        """Count another chunk in."""
        self.counts.update(other.counts)
        self.dropped.update(other.dropped)
        self.lost.update(other.lost)
        self.whole.add(other.whole)
        self.split.add(other.split)


def tally(
    kept: Sequence[Example],
    ledger: Sequence[Dropped],
    *,
    every: Sequence[Example],
    texts: Sequence[bool],
    conversations: int,
    turns: int,
    altered: int,
    escaped: int,
    unprompted: int = 0,
    masked: int = 0,
) -> Tally:
    """Count a chunk.

    Args:
        kept: examples that fit, and what is kept of cut ones.
        ledger: a line for each of the others, and for each row that a policy dropped (its id).
        every: all examples, uncut, for the length distribution.
        texts: which of these are plain texts.
        conversations: number of conversations read.
        turns: trained turns asked for (`turns_trained` are those that the examples hold).
        altered: conversations whose contents the template changed (blanks, shortened history).
        escaped: conversations with control tokens in contents that became plain text.
        unprompted: assistant messages without loss since they begin their conversation.
        masked: the other assistant messages that nobody asked to train.
    """
    ends = _turns(every)
    asked, held = sum(map(len, ends)), sum(map(len, _turns(kept) if ledger else ends))
    counts = {
        "conversations": conversations,
        "kept": len({example.conversation_id for example in kept}),
        "examples_kept": len(kept),
        "cut": sum(line.reason == CUT for line in ledger),
        "answers_without_prompt": unprompted,
        "answers_masked": masked,
        "turns": turns,
        "turns_trained": asked,
        "turns_lost": asked - held,
        "tokens": sum(len(example.input_ids) for example in kept),
        "trained_tokens": sum(example.trained_tokens for example in kept),
        "straddling_rows": sum(example.straddling > 0 for example in kept),
        "altered_conversations": altered,
        "escaped_conversations": escaped,
    }
    whole, split = Gains(), Gains()
    for example, runs, text in zip(every, ends, texts, strict=True):
        _count(len(example.input_ids), runs, whole, split, text=text)
    names = {example.id: example.conversation_id for example in every}
    gone = [line for line in ledger if line.reason != CUT]
    lost = Counter(line.reason for line in gone if line.id in names)
    rows = _dropped_rows(kept, gone, names)
    return Tally(Counter(counts), rows, lost, whole, split)


def _dropped_rows(
    kept: Sequence[Example], gone: Sequence[Dropped], names: Mapping[str, str]
) -> Counter[str]:
    """Rows of which nothing is kept, by the reason of their first line; `names` gives the row of
    an example, a line of a whole row has that row's id."""
    whose = {example.conversation_id for example in kept}
    reasons: dict[str, str] = {}
    for line in gone:
        row = names.get(line.id, line.id)
        if row not in whose:
            reasons.setdefault(row, line.reason)
    return Counter(reasons.values())


def _count(size: int, turns: Turns, whole: Gains, split: Gains, *, text: bool) -> None:
    """Count an example of `size` tokens in; a plain text loses nothing when it is split."""
    trained = sum(end - start for start, end in turns)
    whole.count(size, examples=1, turns=len(turns), tokens=size, trained=trained)
    if text or not turns:
        split.count(1 if text else size, examples=1, turns=len(turns), tokens=size, trained=trained)
        return
    reached = 0
    for start, end in turns:
        split.count(end, examples=reached == 0, turns=1, tokens=end - reached, trained=end - start)
        reached = end
    split.count(size, examples=0, turns=0, tokens=size - reached, trained=0)


def summarise(total: Tally, samples: Sequence[Example], *, tokenizer: Any) -> dict[str, Any]:
    """The report of a split: rows_in = kept + dropped, and the same of the examples that the rows
    became; `tokenizer` decodes the samples.

    `length_curve` is the text of a TSV file, `length_table` what a limit of any length keeps: both
    are not for the report itself.
    """
    found, cut = distribution(total.whole), distribution(total.split)
    counts = {key: total.counts[key] for key in total.counts}
    examples = {
        "in": total.whole.examples.total(),
        "kept": counts.pop("examples_kept", 0),
        "dropped": dict(sorted(total.lost.items())),
    }
    tokens, trained = total.counts["tokens"], total.counts["trained_tokens"]
    return {
        **counts,
        "rows_in": total.counts["conversations"],
        "examples": examples,
        "dropped": dict(sorted(total.dropped.items())),
        "tokens_lost": total.whole.tokens.total() - tokens,
        "trained_tokens_lost": total.whole.trained.total() - trained,
        "trained_share": round(trained / tokens, 6) if tokens else 0.0,
        "lengths": percentiles(found),
        **limits_report(found, cut),
        "length_table": {"drop": asdict(found), "split": asdict(cut)},
        "length_curve": curve(found),
        "samples": [_sample(example, tokenizer) for example in samples],
    }


def _turns(examples: Sequence[Example]) -> list[Turns]:
    """Each example's runs of trained tokens.

    An unlabelled token before, between and after the examples keeps their runs apart.
    """
    apart = [[IGNORE_INDEX], *([*example.labels, IGNORE_INDEX] for example in examples)]
    trained = np.frombuffer(packed(apart), np.int32) != IGNORE_INDEX
    starts = np.flatnonzero(trained[1:] & ~trained[:-1]) + 1
    ends = np.flatnonzero(trained[:-1] & ~trained[1:]) + 1
    begins = np.cumsum([1, *(len(example.labels) + 1 for example in examples)])
    first = np.searchsorted(starts, begins).tolist()
    own = np.repeat(begins[:-1], np.diff(first))
    runs = list(zip((starts - own).tolist(), (ends - own).tolist(), strict=True))
    return [runs[one:other] for one, other in pairwise(first)]


def _sample(example: Example, tokenizer: Any) -> dict[str, Any]:
    trained = [label for label in example.labels if label != IGNORE_INDEX]
    return {
        "id": example.id,
        "first": [tokenizer.decode([token]) for token in trained[:SHOWN_TOKENS]],
        "last": tokenizer.decode(trained[-1:]),
    }
