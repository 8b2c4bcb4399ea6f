"""The rebalance policy: pure, deterministic, movement first. One layer at a time, each in four steps:

1. *Clear*: slots on ranks that are not allowed, and second copies on one rank. Nothing else leaves its slot.
2. *Repair*: experts that lost their last replica get a slot before anything else (an empty one, or that of a
   replica which is missed least).
3. *Fill*: empty slots take replicas of the experts with the most load per replica, emptiest rank first.
4. *Level*: replace a redundant replica or swap two experts while that gains enough per expert row moved
   (level.py; hysteresis), and only where the busiest rank exceeds the mean by more than `tolerance`.

The load of an expert is taken to split evenly over its replicas. Water-filling replication follows DeepSeek's
EPLB; stopping at a threshold per moved row follows the utilisation thresholds of SGLang and vllm-ascend.
Integers in, stable order throughout, float64 sums in index order: equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elasticfsm.errors import PlacementError

from .level import FloatArray, Policy, level, loads_by_rank, shares
from .placement import EMPTY, IntArray, Placement

LoadArray = npt.NDArray[np.int64]


class Move(NamedTuple):
    """One expert row to copy: into slot `destination` from slot `source`, both physical, in one layer."""

    expert: int
    source: int
    destination: int


DEFAULT_POLICY = Policy()


def plan(
    current: Placement,
    loads: LoadArray,
    allowed: Iterable[int] | None = None,
    policy: Policy = DEFAULT_POLICY,
    operation: str | None = None,
) -> Placement:
    """Return the placement to move to; `current` itself (same object) when nothing is worth a move.

    `loads` is int64 [layers, experts], tokens routed to each logical expert; `allowed` are the ranks that may
    hold experts (default: all). Pure; called by rank 0 of a generation. Raises PlacementError when the allowed
    ranks have fewer slots than there are experts or the loads have another shape.
    """
    ranks = sorted(set(range(current.world_size) if allowed is None else allowed))
    _refuse(current, loads, ranks)
    rows = np.stack([_Layer(current, layer, loads[layer], ranks).solve(policy) for layer in range(current.layers)])
    if np.array_equal(rows, current.physical_to_logical):
        return current
    return current.with_rows(rows, operation=operation).check()


def _refuse(current: Placement, loads: LoadArray, ranks: list[int]) -> None:
    if loads.shape != (current.layers, current.experts) or loads.dtype.kind != "i" or (loads < 0).any():
        raise PlacementError(
            f"loads are {loads.dtype} {loads.shape}; expected counts of shape ({current.layers}, {current.experts})"
        )
    if not ranks or ranks[0] < 0 or ranks[-1] >= current.world_size:
        raise PlacementError(f"allowed ranks {ranks} are not among 0 to {current.world_size - 1}")
    if len(ranks) * current.slots_per_rank < current.experts:
        raise PlacementError(
            f"{len(ranks)} ranks x {current.slots_per_rank} slots cannot hold {current.experts} experts"
        )


class _Layer:
    """One layer while it is planned: `row` [ranks, slots] of the whole world, counts and rank loads derived."""

    def __init__(self, current: Placement, layer: int, load: LoadArray, ranks: list[int]) -> None:
        self.row = current.row(layer).copy().reshape(current.world_size, current.slots_per_rank)
        self.ranks = np.array(ranks)
        self.experts = current.experts
        self.known = bool(load.any())
        # One token more for every expert: without any load all experts weigh alike instead of nothing.
        self.load: FloatArray = load.astype(np.float64) + 1.0

    def solve(self, policy: Policy) -> IntArray:
        self._clear()
        self._repair()
        self._fill()
        if self.known:
            level(self.row, self.load, self.ranks, policy)
        return self.row.reshape(-1)

    def _clear(self) -> None:
        kept = np.full_like(self.row, EMPTY)
        for rank in self.ranks:
            experts, first = np.unique(self.row[rank], return_index=True)
            kept[rank, first] = experts
        self.row = kept

    def _repair(self) -> None:
        orphans = np.flatnonzero(self._counts() == 0)
        for expert in orphans[np.argsort(-self.load[orphans], kind="stable")]:
            self.row[self._slot_for_orphan()] = expert

    def _slot_for_orphan(self) -> tuple[int, int]:
        """Return the empty slot, else the least missed redundant one, on the least loaded rank."""
        counts, shares, rank_loads = self._counts(), self._shares(), self._rank_loads()
        best: tuple[float, int, int] | None = None
        for rank in self.ranks:
            for slot, held in enumerate(self.row[rank]):
                if held != EMPTY and counts[held] < 2:
                    continue
                cost = rank_loads[rank] - (self.load.sum() if held == EMPTY else shares[held])
                if best is None or cost < best[0]:
                    best = (float(cost), int(rank), slot)
        if best is None:
            raise PlacementError("no slot is free or redundant for an expert without replica: the slots are too few")
        return best[1], best[2]

    def _fill(self) -> None:
        """Fill empty slots, emptiest rank first, each with the expert of most load per replica it lacks."""
        while True:
            held = (self.row[self.ranks] != EMPTY).sum(axis=1)
            fillable = self.ranks[held < min(self.row.shape[1], self.experts)]
            if not len(fillable):
                return
            rank = fillable[np.argmin(self._rank_loads()[fillable])]
            wanted = self._shares()
            wanted[self.row[rank][self.row[rank] != EMPTY]] = -1.0
            self.row[rank, int(np.argmax(self.row[rank] == EMPTY))] = int(np.argmax(wanted))

    def _counts(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.row[self.row != EMPTY], minlength=self.experts)

    def _shares(self) -> FloatArray:
        return shares(self.row, self.load)

    def _rank_loads(self) -> FloatArray:
        return loads_by_rank(self.row, self._shares())


def rank_loads(placement: Placement, loads: npt.NDArray[Any]) -> FloatArray:
    """Return float64 [layers, ranks]: the load of each rank when every expert splits evenly over its replicas."""
    by_rank = placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)
    share = loads / np.maximum(placement.replicas, 1)
    return np.stack([loads_by_rank(by_rank[layer], share[layer]) for layer in range(placement.layers)])


def moves(layer: int, old: Placement, new: Placement) -> list[Move]:
    """Return what must be copied so that a layer of `old` becomes that of `new`, in one fixed order.

    Sources are slots of `old`: on the receiver's own rank where it holds the expert, else on the holder that
    sends least so far (fewest choices first, then lowest rank). A source may itself be a destination: rows are
    read into staging buffers and written to their slots only when every rank has finished reading, so that
    every read sees the old row. Pure; every rank computes the same list. Raises PlacementError when `old` holds
    no copy of a needed expert.
    """
    was, now = old.row(layer), new.row(layer)
    wanted = [(int(now[slot]), int(slot)) for slot in np.flatnonzero((now != was) & (now != EMPTY))]
    holders = {expert: old.slots(layer, expert) for expert, _ in wanted}
    sent = dict.fromkeys(range(old.world_size), 0)
    chosen = []
    for expert, destination in sorted(wanted, key=lambda w: (len(holders[w[0]]), w[1])):
        source = _source(holders[expert], old, old.rank_of(destination), sent)
        if source is None:
            raise PlacementError(f"layer {layer}: no rank holds expert {expert}, so slot {destination} cannot have it")
        chosen.append(Move(expert, source, destination))
    return sorted(chosen, key=lambda move: move.destination)


def _source(holders: list[int], old: Placement, receiver: int, sent: dict[int, int]) -> int | None:
    local = [slot for slot in holders if old.rank_of(slot) == receiver]
    if local:
        return local[0]
    if not holders:
        return None
    source = min(holders, key=lambda slot: (sent[old.rank_of(slot)], slot))
    sent[old.rank_of(source)] += 1
    return source


def lower_bound(old: Placement, new_ranks: Iterable[int], gone: Iterable[int] = ()) -> int:
    """Return how many rows at least must cross ranks: new ranks filled with distinct experts, orphans repaired."""
    filled = min(old.slots_per_rank, old.experts) * len(set(new_ranks)) * old.layers
    stay = [rank for rank in range(old.world_size) if rank not in set(gone)]
    by_rank = old.physical_to_logical.reshape(old.layers, old.world_size, -1)[:, stay].reshape(old.layers, -1)
    orphans = sum(old.experts - len(np.setdiff1d(row, [EMPTY])) for row in by_rank)
    return max(filled, orphans)
