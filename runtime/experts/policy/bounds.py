"""What no policy can beat: bounds on the busiest rank, on the rows that must move, and on the time this takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..placement import IntArray
from .balanced import replicate
from .tally import Bools, Ints, held

Floats = npt.NDArray[np.float64]


def busiest_bound(loads: npt.NDArray[Any], ranks: int, slots: int) -> Floats:
    """Return float64 [layers], the least load that the busiest of the ranks can have; `loads` [layers, experts].

    The larger of the mean per rank and the best possible heaviest replica; water-filling replication is optimal for
    the latter. Loads split evenly over replicas; an expert has at most one on a rank.
    """
    tokens = loads.astype(np.int64)
    total = ranks * min(slots, loads.shape[1])
    # Water-filling compares whole numbers: scaled up, so that the shares of small loads are not cut to equal ones.
    counts = replicate(tokens << max(0, 60 - int(tokens.max(initial=1)).bit_length()), total, ranks)
    heaviest: Floats = (tokens / counts).max(axis=1)
    bound: Floats = np.maximum(heaviest, tokens.sum(axis=1) / ranks)
    return bound


def full_rank_bound(shares: npt.NDArray[Any], slots: int) -> float:
    """Return the least load of the rank with the heaviest of `shares` [replicas] when all its slots are filled.

    Holds for a fixed choice of replicas: beside the heaviest one at least the slots - 1 lightest have to lie.
    """
    ordered = np.sort(np.asarray(shares))
    return float(ordered[-1] + ordered[: max(0, min(slots, len(ordered)) - 1)].sum())


def busiest(rows: IntArray, loads: npt.NDArray[Any]) -> Floats:
    """Return float64 [layers], the load of the busiest rank; `rows` [layers, ranks, slots], replicas share evenly."""
    layers, ranks, _ = rows.shape
    experts = loads.shape[1]
    copies = _copies(rows, experts)
    share = loads / np.maximum(copies.sum(axis=1), 1)
    peak: Floats = np.max((copies * share[:, None]).sum(axis=2), axis=1) if ranks else np.zeros(layers)
    return peak


def moved(current: IntArray, target: IntArray, experts: int) -> Ints:
    """Return int64 [layers, ranks]: rows that each rank receives from others; both maps are [layers, ranks, slots]."""
    received = np.maximum(_copies(target, experts) - _copies(current, experts), 0)
    # A second copy on one rank is made there, from the first.
    received *= ~held(current, experts)[:, :, :-1]
    rows: Ints = np.minimum(received, 1).sum(axis=2)
    return rows


def moved_bound(current: IntArray, usable: Bools, experts: int) -> Ints:
    """Return int64 [layers]: rows that have to cross ranks to cover every expert and fill every slot of usable ranks.

    Whoever fills an empty slot receives a row; and an expert all of whose replicas leave has to be received.
    """
    slots = current.shape[2]
    holds = held(current, experts)[:, usable, :-1]
    space = (min(slots, experts) - holds.sum(axis=2)).sum(axis=1)
    orphans = (~holds.any(axis=1)).sum(axis=1)
    bound: Ints = np.maximum(space, orphans).astype(np.int64)
    return bound


def assignment(cost: npt.NDArray[Any]) -> Ints:
    """Return for each row of a square integer cost matrix its column, so that the sum is least.

    The Hungarian method with potentials and shortest augmenting paths (Kuhn, Munkres; Jonker and Volgenant), O(n^3).
    """
    size = len(cost)
    cost = np.asarray(cost, dtype=np.int64)
    row_price, column_price = np.zeros(size, dtype=np.int64), np.zeros(size + 1, dtype=np.int64)
    owner = np.full(size + 1, -1)  # row of each column; the last column stands for the row that is being placed
    for row in range(size):
        owner[size] = row
        _augment(cost, row_price, column_price, owner)
    columns = np.empty(size, dtype=np.int64)
    columns[owner[:size]] = np.arange(size)
    return columns


def _augment(cost: Ints, row_price: Ints, column_price: Ints, owner: Ints) -> None:
    size, column = len(cost), len(cost)
    shortest = np.full(size, np.iinfo(np.int64).max // 2)
    came_from, seen = np.full(size, size), np.zeros(size + 1, dtype=bool)
    while owner[column] >= 0:
        seen[column] = True
        reduced = cost[owner[column]] - row_price[owner[column]] - column_price[:size]
        closer = ~seen[:size] & (reduced < shortest)
        shortest[closer], came_from[closer] = reduced[closer], column
        following = int(np.where(seen[:size], np.iinfo(np.int64).max, shortest).argmin())
        step = shortest[following]
        row_price[owner[seen]] += step
        column_price[seen] -= step
        shortest[~seen[:size]] -= step
        column = following
    while column != size:
        owner[column] = owner[came_from[column]]
        column = int(came_from[column])


def relabelled(current: IntArray, target: IntArray, usable: Bools, experts: int) -> IntArray:
    """Return `target` with contents of usable ranks exchanged, layer by layer, so that the fewest rows move. Exact."""
    new = target.copy()
    ranks = np.flatnonzero(usable)
    was, will = _copies(current, experts)[:, ranks], _copies(target, experts)[:, ranks]
    for layer in range(len(current)):
        missing = will[layer].sum(axis=1)[:, None] - np.minimum(will[layer][:, None], was[layer][None]).sum(axis=2)
        new[layer, ranks[assignment(missing)]] = target[layer, ranks]
    return new


@dataclass(frozen=True)
class Verdict:
    """How far a placement is from the bounds; sums over layers.

    `balance` is mean load over busiest load, `balance_bound` the best that any placement reaches; `moved` are rows that
    cross ranks, `moved_bound` the fewest, `relabelled` the fewest with these contents under other rank numbers.
    `received` is the most rows that one rank receives.
    """

    balance: float
    balance_bound: float
    moved: int
    moved_bound: int
    relabelled: int
    received: int

    @property
    def of_balance(self) -> float:
        """Balance as a fraction of its bound, at most 1."""
        return self.balance / self.balance_bound

    @property
    def of_moved(self) -> float:
        """Rows moved as a multiple of the bound, at least 1; 1.0 when nothing has to move and nothing does."""
        return self.moved / self.moved_bound if self.moved_bound else float("inf") if self.moved else 1.0


def judge(
    current: IntArray, target: IntArray, loads: npt.NDArray[Any], usable: Bools, *, relabel: bool = True
) -> Verdict:
    """Compare a change with the bounds; maps [layers, ranks, slots], `usable` [ranks]; `relabel` costs most time."""
    experts, ranks = loads.shape[1], int(usable.sum())
    received = moved(current, target, experts)
    mean = loads.sum() / ranks
    least = int(received.sum())
    if relabel:
        least = int(moved(current, relabelled(current, target, usable, experts), experts).sum())
    return Verdict(
        balance=_ratio(mean, busiest(target, loads).sum()),
        balance_bound=_ratio(mean, busiest_bound(loads, ranks, target.shape[2]).sum()),
        moved=int(received.sum()),
        moved_bound=int(moved_bound(current, usable, experts).sum()),
        relabelled=least,
        received=int(received.sum(axis=0).max()),
    )


def seconds_bound(received: Sequence[int], sent: Sequence[int], bytes_per_second: float) -> float:
    """Return the least time with one link each way per rank, from the bytes of every rank: the most of one over it."""
    return max(*received, *sent, 0) / bytes_per_second


def _copies(rows: IntArray, experts: int) -> Ints:
    """Return how often each rank holds each expert, int64 [layers, ranks, experts]."""
    layers, ranks, _ = rows.shape
    width = experts + 1
    at = np.arange(layers * ranks).reshape(layers, ranks, 1) * width
    counts = np.bincount((at + rows % width).ravel(), minlength=layers * ranks * width)
    copies: Ints = counts.reshape(layers, ranks, width)[:, :, :-1]
    return copies


def _ratio(mean: float, peak: float) -> float:
    return float(mean / peak) if peak else 1.0
