"""All layers of a placement at once while they are planned, in integers: contents, replica counts, load of each rank.

Loads are scaled to whole numbers that sum to at most 2**28 in a layer. Sums of integers do not depend on their order,
so equal input gives equal output on every CPU; and everything that follows fits in int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..placement import EMPTY, IntArray

WHOLE = 1 << 28
NEVER = np.int32((1 << 31) - 1)
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


def weights(loads: npt.NDArray[Any]) -> Small:
    """Return loads as int32 [layers, experts], at least 1, each layer summing to about 2**28; `loads` are counts >= 0.

    One token more for every expert: without any load all experts weigh alike instead of nothing.
    """
    tokens = loads.astype(np.int64) + 1
    too_long = np.array([max(0, int(top).bit_length() - 33) for top in tokens.max(axis=1)])[:, None]
    tokens >>= too_long
    scaled = tokens * WHOLE // tokens.sum(axis=1, keepdims=True)
    whole: Small = np.maximum(scaled, 1).astype(np.int32)
    return whole


class Tally:
    """State of the layers under plan; the arrays are changed in place and stay consistent with each other.

    rows int64 [layers, ranks, slots], -1 = empty; load, share int32 [layers, experts + 1] (the last column, of empty
    slots, is zero); replicas int32 [layers, experts + 1], of which counts [layers, experts] is a view; by_rank int32
    [layers, ranks]; holds bool [layers, ranks, experts + 1]; usable bool [ranks]. No rank holds an expert twice.
    """

    def __init__(self, rows: IntArray, load: Small, usable: Bools) -> None:
        self.rows: Ints = rows.astype(np.int64)
        self.layers, self.ranks, self.slots = rows.shape
        self.experts = load.shape[1]
        self.usable = usable
        self.load = np.concatenate([load, np.zeros((self.layers, 1), dtype=np.int32)], axis=1)
        self.mean = load.sum(axis=1, dtype=np.int64) // int(usable.sum())
        self._clear()
        self.gaps = True
        self.held_before = held(rows, self.experts)
        self.holds = held(self.rows, self.experts)
        self.replicas: Small = self.holds.sum(axis=1, dtype=np.int32)
        self.counts = self.replicas[:, :-1]
        self.refresh()

    def refresh(self) -> None:
        """Derive shares and rank loads from rows and counts."""
        share = self.load.copy()
        share[:, :-1] //= np.maximum(self.counts, 1)
        self.share: Small = share
        at = np.arange(self.layers)[:, None, None]
        self.by_rank: Small = share[at, self.rows].sum(axis=2, dtype=np.int32)

    def put(self, layer: Ints, rank: Ints, slot: Ints, expert: Ints) -> None:
        """Change one slot in each of several layers ([n] each); shares and rank loads wait for `refresh`."""
        old = self.rows[layer, rank, slot]
        self.rows[layer, rank, slot] = expert
        self.holds[layer, rank, old] = False
        self.holds[layer, rank, expert] = True
        self.holds[layer, rank, EMPTY] = False
        gone, came = old != EMPTY, expert != EMPTY
        self.counts[layer[gone], old[gone]] -= 1
        self.counts[layer[came], expert[came]] += 1

    def reload(self, layer: Ints) -> None:
        """As `refresh`, for some layers only."""
        share = self.load[layer]
        share[:, :-1] //= np.maximum(self.counts[layer], 1)
        self.share[layer] = share
        at = np.arange(len(layer))[:, None, None]
        self.by_rank[layer] = share[at, self.rows[layer]].sum(axis=2, dtype=np.int32)

    def space(self) -> Ints:
        """Return int64 [layers, ranks]: how many more different experts each usable rank has room for."""
        held = (self.rows != EMPTY).sum(axis=2)
        free: Ints = (min(self.slots, self.experts) - held) * self.usable
        return free

    def _clear(self) -> None:
        self.rows[:, ~self.usable] = EMPTY
        self.rows[~_first_of_equals(self.rows)] = EMPTY


def held(rows: npt.NDArray[Any], experts: int) -> Bools:
    """Return which rank holds which expert, bool [layers, ranks, experts + 1]; the last column is false."""
    layers, ranks = rows.shape[:2]
    holds = np.zeros((layers, ranks, experts + 1), dtype=bool)
    holds[np.arange(layers)[:, None, None], np.arange(ranks)[None, :, None], rows] = True
    holds[:, :, EMPTY] = False
    return holds


def in_place(original: IntArray, holds: Bools) -> IntArray:
    """Return int32 [layers, ranks, slots] with the experts of `holds`; who stays keeps its slot of `original`."""
    was = original.astype(np.int64)
    layers, ranks = was.shape[:2]
    at, rank = np.arange(layers)[:, None, None], np.arange(ranks)[None, :, None]
    stays = holds[at, rank, was] & (was != EMPTY) & _first_of_equals(was)
    rows = np.where(stays, was, EMPTY)
    left = holds.copy()
    layer, owner, _ = np.nonzero(stays)
    left[layer, owner, was[stays]] = False
    layer, owner, expert = np.nonzero(left)
    if len(layer):
        free = np.argsort(stays, axis=2, kind="stable")  # free slots of a rank first, ascending
        start = np.flatnonzero(np.diff(layer * ranks + owner, prepend=-1))
        nth = np.arange(len(layer)) - np.repeat(start, np.diff(start, append=len(layer)))
        rows[layer, owner, free[layer, owner, nth]] = expert
    return rows.astype(np.int32)


def _first_of_equals(rows: Ints) -> Bools:
    """Return where a slot holds an expert that no lower slot of its rank holds; [layers, ranks, slots]."""
    order = np.argsort(rows, axis=2, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=2)
    first = np.ones_like(ordered, dtype=bool)
    first[:, :, 1:] = ordered[:, :, 1:] != ordered[:, :, :-1]
    unsorted = np.empty_like(first)
    np.put_along_axis(unsorted, order, first, axis=2)
    kept: Bools = unsorted | (rows == EMPTY)
    return kept
