"""Leaks between the splits of a table, and train rows without those that leak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hashtune.data.items import Items
from hashtune.data.leak_index import Item
from hashtune.data.leakage import LeakReport, leakage_of_sets, leaking_rows
from hashtune.data.near_leaks import add_near_leaks
from hashtune.data.table import Chosen, Rows, Table
from hashtune.spec.schema import NearDuplicates

REASON = "leaked"


@dataclass(frozen=True, slots=True)
class LeakSearch:
    """`files` maps source names to files; `suites` hold questions; runs of `n` words count."""

    table: Table
    files: Mapping[str, str]
    suites: Mapping[str, Sequence[Item]]
    n: int

    def reports(self, splits: Mapping[str, Chosen], near: NearDuplicates) -> dict[str, LeakReport]:
        """What train holds of every other split and of the suites."""
        train = Items(self.table, splits["train"].rows, self.files)
        held_out = self._held_out({name: of for name, of in splits.items() if name != "train"})
        leaks = leakage_of_sets(train, held_out, self.n)
        if near.threshold is not None:
            add_near_leaks(leaks, train, held_out, threshold=near.threshold, n=near.shingle)
        return leaks

    def without_leaks(self, rows: Rows, held_out: Mapping[str, Chosen]) -> Rows:
        """The train rows that hold nothing of the held-out side by exact match or words; the others
        go to the ledger, each with what it holds."""
        leaks = np.zeros(len(rows), np.bool_)
        train = Items(self.table, rows, self.files)
        for place, detail in leaking_rows(train, self._held_out(held_out), self.n):
            self.table.drop(rows[place : place + 1], REASON, detail)
            leaks[place] = True
        return rows[~leaks]

    def _held_out(self, splits: Mapping[str, Chosen]) -> dict[str, Sequence[Item]]:
        sets: dict[str, Sequence[Item]] = {
            name: [item._replace(others=()) for item in Items(self.table, of.rows, self.files)]
            for name, of in splits.items()
        }
        return sets | {f"suite_{name}": of for name, of in self.suites.items()}
