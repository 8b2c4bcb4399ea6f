"""Which ranks should leave when the operator leaves it open: those whose departure orphans the fewest experts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, islice
from math import comb

import numpy as np
import numpy.typing as npt

from elasticfsm.errors import PlacementError

from ..placement import Placement, refuse_size
from .tally import held

EXACT = 5000  # subsets up to which all are tried
_BATCH = 256


def orphans(placement: Placement, gone: Iterable[int]) -> int:
    """Return how many (layer, expert) have all their replicas on the ranks `gone`."""
    members = np.zeros((1, placement.world_size), dtype=np.float32)
    members[0, list(gone)] = 1
    return int(_Orphans(placement).count(members)[0])


def choose_leaving(placement: Placement, count: int, keep: Iterable[int] = ()) -> tuple[int, ...]:
    """Return `count` ranks, ascending, whose leaving orphans fewest experts; among equals the highest ranks leave.

    Exact while there are few subsets (5000), else the best rank one after the other, then improved by exchanging one
    at a time. `keep` never leave. Pure. Raises RequestRefused when the others cannot hold the experts, PlacementError
    when too few may leave.
    """
    refuse_size(placement.world_size - count, placement.experts, placement.slots_per_rank)
    kept = set(keep)
    candidates = [rank for rank in range(placement.world_size - 1, -1, -1) if rank not in kept]
    if not 0 <= count <= len(candidates):
        raise PlacementError(f"{count} ranks are to leave but only {len(candidates)} of {placement.world_size} may")
    known = _Orphans(placement)
    search = _exact if comb(len(candidates), count) <= EXACT else _greedy
    return tuple(sorted(search(known, candidates, count)))


class _Orphans:
    """Counts orphans for many sets of ranks at once; sums of 0 and 1 are exact in float32 in whatever order."""

    def __init__(self, placement: Placement) -> None:
        rows = placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)
        holds = held(rows, placement.experts)[:, :, :-1].transpose(1, 0, 2).reshape(placement.world_size, -1)
        self._holds = holds.astype(np.float32)
        self._total = self._holds.sum(axis=0)

    def count(self, members: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Return int64 [sets] for `members` [sets, ranks] of 0 and 1; experts that nobody holds count for every set."""
        return np.asarray(((members @ self._holds) == self._total).sum(axis=1), dtype=np.int64)

    def of(self, sets: list[tuple[int, ...]]) -> npt.NDArray[np.int64]:
        """Return int64 [sets]."""
        members = np.zeros((len(sets), len(self._holds)), dtype=np.float32)
        for number, ranks in enumerate(sets):
            members[number, list(ranks)] = 1
        return self.count(members)


def _exact(known: _Orphans, candidates: list[int], count: int) -> tuple[int, ...]:
    subsets = combinations(candidates, count)
    best: tuple[int, tuple[int, ...]] | None = None
    while batch := list(islice(subsets, _BATCH)):
        found = known.of(batch)
        at = int(found.argmin())
        if best is None or found[at] < best[0]:
            best = int(found[at]), batch[at]
    return best[1] if best else ()


def _greedy(known: _Orphans, candidates: list[int], count: int) -> tuple[int, ...]:
    chosen: tuple[int, ...] = ()
    for _ in range(count):
        grown = [(*chosen, rank) for rank in candidates if rank not in chosen]
        chosen = grown[int(known.of(grown).argmin())]
    least = int(known.of([chosen])[0])
    while True:
        exchanged = [
            (*chosen[:at], rank, *chosen[at + 1 :]) for at in range(count) for rank in candidates if rank not in chosen
        ]
        found = known.of(exchanged) if exchanged else np.array([least])
        if found.min() >= least:
            return chosen
        least, chosen = int(found.min()), exchanged[int(found.argmin())]
