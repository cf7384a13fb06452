"""Births and deaths of storages in the order in which they happened, as plain data.

number n > 0    storage n is born (births[n - 1] says what it is)
number -n       storage n dies
"""

from dataclasses import dataclass, field

from hashtune.training.phases import Phase


@dataclass(frozen=True, slots=True)
class Birth:
    """A storage: bytes, the first tensor's shape and type in words, the line that made it
    ("transformers/models/llama/modeling_llama.py:61 forward"), its module ("" outside of any)."""

    size: int
    shape: tuple[int, ...]
    dtype: str
    line: str
    module: str


@dataclass(slots=True)
class Events:
    """A run's record. `marks` are (number of events before it, phase)."""

    births: list[Birth] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    marks: list[tuple[int, Phase]] = field(default_factory=list)

    def born(self, birth: Birth) -> int:
        """Write down a birth; returns the storage's number."""
        self.births.append(birth)
        self.numbers.append(len(self.births))
        return len(self.births)

    def died(self, number: int) -> None:
        """Write down a death."""
        self.numbers.append(-number)

    def mark(self, phase: Phase) -> None:
        """What follows belongs to this phase."""
        self.marks.append((len(self.numbers), phase))

    def size(self, number: int) -> int:
        """Bytes of the storage of an event, negative for a death."""
        size = self.births[abs(number) - 1].size
        return size if number > 0 else -size
