"""Give every expert a slot and every empty slot an expert; nothing that has a place is moved. All layers in lock-step.

Which experts get replicas is decided first (water-filling: always the one with the most load per replica, as DeepSeek's
EPLB does), where they go second (heaviest first to the least loaded rank with room): both are known when either is.
"""

from __future__ import annotations

import numpy as np

from elasticfsm.errors import PlacementError

from ..placement import EMPTY
from .tally import NEVER, Ints, Tally


def fill(tally: Tally) -> None:
    """Place orphans, then replicas, until no usable rank has room for an expert that it lacks.

    Raises PlacementError when the usable ranks have fewer slots than there are experts.
    """
    _evict(tally)
    _place(tally, _wanted(tally))
    _top_up(tally)


def _evict(tally: Tally) -> None:
    """Empty as many redundant slots as orphans lack: the replica that is missed least, on its most loaded rank."""
    while True:
        orphans = (tally.counts == 0).sum(axis=1)
        layer = np.flatnonzero(orphans > tally.space().sum(axis=1))
        if not len(layer):
            return
        counts = tally.counts[layer]
        cost = np.where(counts > 1, tally.load[layer, :-1] // np.maximum(counts - 1, 1), NEVER)
        expert = cost.argmin(axis=1)
        if (counts[np.arange(len(layer)), expert] < 2).any():
            raise PlacementError("no slot is free or redundant for an expert without replica: the slots are too few")
        rank = np.where(tally.holds[layer, :, expert], tally.by_rank[layer], -1).argmax(axis=1)
        slot = (tally.rows[layer, rank] == expert[:, None]).argmax(axis=1)
        tally.put(layer, rank, slot, np.full(len(layer), EMPTY))
        tally.reload(layer)


def _wanted(tally: Tally) -> Ints:
    """Return how many replicas of each expert to add, int64 [layers, experts]: orphans one, then by water-filling."""
    space = tally.space()
    wanted: Ints = (tally.counts == 0).astype(np.int64)
    left = space.sum(axis=1) - wanted.sum(axis=1)
    # An expert can be added once for every rank with room that lacks it.
    room = ((space > 0)[:, :, None] & ~tally.holds[:, :, :-1]).sum(axis=1) - wanted
    load = tally.load[:, :-1].astype(np.int64)
    replicas = tally.counts + wanted
    share = np.where(room > 0, load // np.maximum(replicas, 1), -1)
    at = np.arange(tally.layers)
    while True:
        expert = share.argmax(axis=1)
        layer = at[(left > 0) & (share[at, expert] >= 0)]
        if not len(layer):
            return wanted
        expert = expert[layer]
        wanted[layer, expert] += 1
        replicas[layer, expert] += 1
        room[layer, expert] -= 1
        left[layer] -= 1
        share[layer, expert] = np.where(room[layer, expert] > 0, load[layer, expert] // replicas[layer, expert], -1)


def _place(tally: Tally, wanted: Ints) -> None:
    """Put the wanted replicas on ranks with room, heaviest first, each on the least loaded that lacks it."""
    counts = np.maximum(tally.counts + wanted, 1)
    share = tally.load[:, :-1] // counts.astype(np.int32)
    heaviest_first = np.argsort(-share, axis=1, kind="stable")
    times = np.take_along_axis(wanted, heaviest_first, axis=1)
    items = [np.repeat(heaviest_first[layer], times[layer]) for layer in range(tally.layers)]
    padded = np.concatenate([share, np.zeros((tally.layers, 1), dtype=np.int32)], axis=1)
    at = np.arange(tally.layers)[:, None, None]
    by_rank = padded[at, tally.rows].sum(axis=2, dtype=np.int64)
    space = tally.space()
    for number in range(max(map(len, items), default=0)):
        layer = np.array([at for at in range(tally.layers) if number < len(items[at])])
        expert = np.array([items[at][number] for at in layer])
        open_ = (space[layer] > 0) & ~tally.holds[layer, :, expert]
        rank = np.where(open_, by_rank[layer], NEVER).argmin(axis=1)
        fits = open_[np.arange(len(layer)), rank]
        layer, expert, rank = layer[fits], expert[fits], rank[fits]
        slot = (tally.rows[layer, rank] == EMPTY).argmax(axis=1)
        tally.put(layer, rank, slot, expert)
        space[layer, rank] -= 1
        by_rank[layer, rank] += share[layer, expert]
    tally.refresh()


def _top_up(tally: Tally) -> None:
    """Fill what is still empty, least loaded rank first, each with the expert of most load per replica it lacks."""
    while True:
        space = tally.space()
        layer = np.flatnonzero(space.sum(axis=1))
        if not len(layer):
            return
        rank = np.where(space[layer] > 0, tally.by_rank[layer], NEVER).argmin(axis=1)
        expert = np.where(tally.holds[layer, rank, :-1], -1, tally.share[layer, :-1]).argmax(axis=1)
        slot = (tally.rows[layer, rank] == EMPTY).argmax(axis=1)
        tally.put(layer, rank, slot, expert)
        tally.reload(layer)
