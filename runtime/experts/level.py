"""Even out the ranks of one layer by few moves: from the busiest rank, replace a redundant replica or swap two experts.

What is lowered is the *excess*, the load above (1 + tolerance) x mean summed over ranks: unlike the peak alone it
falls also while several ranks are equally busy. A change must pay: excess falls by min_gain x mean per row moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .placement import EMPTY, IntArray

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Policy:
    """How eager the planner is: fractions of the mean load per rank."""

    tolerance: float = 0.05
    min_gain: float = 0.02


def shares(row: IntArray, load: FloatArray) -> FloatArray:
    """Return load per replica, float64 [experts]; `row` is [ranks, slots], -1 = empty."""
    counts = np.bincount(row[row != EMPTY], minlength=len(load))
    per_replica: FloatArray = load / np.maximum(counts, 1)
    return per_replica


def loads_by_rank(row: IntArray, share: FloatArray) -> FloatArray:
    """Return the load of each rank, float64 [ranks]."""
    padded = np.append(share, 0.0)  # index -1, an empty slot, weighs nothing
    loads: FloatArray = padded[row].sum(axis=-1)
    return loads


def level(row: IntArray, load: FloatArray, ranks: npt.NDArray[np.int64], policy: Policy) -> None:
    """Change `row` (int32 [ranks of the world, slots]) in place, using slots of `ranks` only; pure otherwise."""
    # Every accepted change lowers the excess, so this ends; the cap is for a caller that sets min_gain to zero.
    for _ in range(row.size):
        by_rank = loads_by_rank(row, shares(row, load))
        limit = (1 + policy.tolerance) * by_rank[ranks].mean()
        if by_rank.max() <= limit:
            return
        change = _Candidates(row, load, ranks, limit).best()
        if change is None or change[0] < policy.min_gain * by_rank[ranks].mean():
            return
        for rank, slot, expert in change[1]:
            row[rank, slot] = expert


class _Candidates:
    """All changes that take load off the busiest rank, valued together."""

    def __init__(self, row: IntArray, load: FloatArray, ranks: npt.NDArray[np.int64], limit: float) -> None:
        self.row, self.load, self.limit = row, load, limit
        self.share = shares(row, load)
        self.by_rank = loads_by_rank(row, self.share)
        self.busiest = int(self.by_rank.argmax())
        self.holds = np.zeros((row.shape[0], len(load) + 1), dtype=bool)  # the last column stands for empty slots
        self.holds[np.arange(row.shape[0])[:, None], row] = True
        self.holds[:, EMPTY] = False
        self.counts = self.holds.sum(axis=0)
        others = ranks[ranks != self.busiest]
        self.rank = np.repeat(others, row.shape[1])
        self.slot = np.tile(np.arange(row.shape[1]), len(others))
        self.victim = row[self.rank, self.slot]
        self.excess = np.maximum(self.by_rank - limit, 0.0)

    def best(self) -> tuple[float, list[tuple[int, int, int]]] | None:
        """Return (fall of the excess per row moved, [(rank, slot, expert)]); the first of equals wins."""
        found: tuple[float, list[tuple[int, int, int]]] | None = None
        if not len(self.rank):
            return None
        for mine, expert in enumerate(self.row[self.busiest]):
            if expert == EMPTY:
                continue
            for gains, swap in ((self._replace(int(expert)), False), (self._swap(int(expert)) / 2, True)):
                at = int(np.argmax(gains))
                if gains[at] > (found[0] + 1e-9 if found else 0.0):
                    there = (int(self.rank[at]), int(self.slot[at]), int(expert))
                    back = [(self.busiest, mine, int(self.victim[at]))] if swap else []
                    found = float(gains[at]), [there, *back]
        return found

    def _swap(self, expert: int) -> FloatArray:
        """Gains of exchanging `expert` with each candidate's victim; -1 where that is no legal swap."""
        given = self.share[expert] - self.share[self.victim]  # a victim of -1 is masked below
        after = np.stack([self.by_rank[self.busiest] - given, self.by_rank[self.rank] + given])
        gain = self.excess[self.busiest] + self.excess[self.rank] - np.maximum(after - self.limit, 0.0).sum(axis=0)
        legal = (self.victim != EMPTY) & ~self.holds[self.rank, expert] & ~self.holds[self.busiest, self.victim]
        return self._masked(gain, legal & (after.max(axis=0) <= self.by_rank.max()))

    def _replace(self, expert: int) -> FloatArray:
        """Gains of a new replica of `expert` in place of a redundant victim or of nothing; -1 where not legal."""
        gained = self.load[expert] / (self.counts[expert] + 1)
        padded = np.append(self.share, 0.0)[self.victim]
        lost = np.where(self.victim == EMPTY, 0.0, self.load[self.victim] / np.maximum(self.counts[self.victim] - 1, 1))
        after = np.tile(self.by_rank, (len(self.rank), 1))
        after += self.holds[:, expert] * (gained - self.share[expert])
        after += self.holds[:, self.victim].T * (lost - padded)[:, None]
        after[np.arange(len(self.rank)), self.rank] += gained - lost
        gain = self.excess.sum() - np.maximum(after - self.limit, 0.0).sum(axis=1)
        legal = ((self.victim == EMPTY) | (self.counts[self.victim] > 1)) & ~self.holds[self.rank, expert]
        return self._masked(gain, legal & (after.max(axis=1) <= self.by_rank.max()))

    @staticmethod
    def _masked(gain: FloatArray, legal: npt.NDArray[np.bool_]) -> FloatArray:
        kept: FloatArray = np.where(legal, gain, -1.0)
        return kept
