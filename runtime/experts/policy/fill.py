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
    orphans = (tally.counts == 0).astype(np.int64)
    lacking = orphans.sum(axis=1) - tally.space().sum(axis=1)
    if (lacking > 0).any():
        _take(tally, _redundant(tally, lacking), orphans)
    _place(tally, _wanted(tally))
    _top_up(tally)


def _redundant(tally: Tally, lacking: Ints) -> Ints:
    """Return how many replicas of each expert to give up, int64 [layers, experts], so that orphans find a slot.

    Always the expert whose remaining replicas get the least load.
    """
    given, counts, left = np.zeros(tally.counts.shape, np.int64), tally.counts.copy(), lacking.copy()
    load, at = tally.load[:, :-1].astype(np.int64), np.arange(tally.layers)
    cost = np.where(counts > 1, load // np.maximum(counts - 1, 1), NEVER)
    while (left > 0).any():
        expert = cost.argmin(axis=1)
        layer = at[left > 0]
        expert = expert[layer]
        if (cost[layer, expert] == NEVER).any():
            raise PlacementError("no slot is free or redundant for an expert without replica: the slots are too few")
        given[layer, expert] += 1
        counts[layer, expert] -= 1
        left[layer] -= 1
        remaining = counts[layer, expert]
        cost[layer, expert] = np.where(remaining > 1, load[layer, expert] // np.maximum(remaining - 1, 1), NEVER)
    return given


def _take(tally: Tally, given: Ints, coming: Ints) -> None:
    """Empty one slot for each replica to give up, heaviest first, each on its most loaded rank."""
    share, by_rank = _shares(tally, tally.counts - given + coming)
    items, many = _heaviest_first(share, given)
    at = np.arange(tally.layers)
    for number in range(items.shape[1]):
        layer = at[many > number]
        expert = items[layer, number]
        rank = np.where(tally.holds[layer, :, expert], by_rank[layer], -1).argmax(axis=1)
        slot = (tally.rows[layer, rank] == expert[:, None]).argmax(axis=1)
        tally.rows[layer, rank, slot] = EMPTY
        tally.holds[layer, rank, expert] = False
        by_rank[layer, rank] -= share[layer, expert]
    tally.counts -= given


def _wanted(tally: Tally) -> Ints:
    """Return how many replicas of each expert to add, int64 [layers, experts]: orphans one, then by water-filling."""
    space = tally.space()
    wanted: Ints = (tally.counts == 0).astype(np.int64)
    left = space.sum(axis=1) - wanted.sum(axis=1)
    if not left.any():
        return wanted
    # An expert can be added once for every rank with room that lacks it.
    room = ((space > 0)[:, :, None] & ~tally.holds[:, :, :-1]).sum(axis=1) - wanted
    load, replicas = tally.load[:, :-1].astype(np.int64), tally.counts + wanted
    share = np.where(room > 0, load // np.maximum(replicas, 1), -1)
    by_rank, at = tally.by_rank.astype(np.int64), np.arange(tally.layers)
    while True:
        expert = _next_replica(tally, share, by_rank)
        layer = at[(left > 0) & (share[at, expert] >= 0)]
        if not len(layer):
            return wanted
        expert = expert[layer]
        wanted[layer, expert] += 1
        replicas[layer, expert] += 1
        room[layer, expert] -= 1
        left[layer] -= 1
        after = load[layer, expert] // replicas[layer, expert]
        by_rank[layer] -= tally.holds[layer, :, expert] * (share[layer, expert] - after)[:, None]
        share[layer, expert] = np.where(room[layer, expert] > 0, after, -1)


def _next_replica(tally: Tally, share: Ints, by_rank: Ints) -> Ints:
    """Return the expert of each layer that should get one more replica, int64 [layers].

    The one with the most load per replica while that is more than a rank's mean; then the heaviest of the most loaded
    rank, because who stays in place is relieved only by replicas elsewhere; and when nobody needs that any more the
    lightest, so that the ranks that are filled do not become the busiest.
    """
    at = np.arange(tally.layers)
    heaviest, lightest = share.argmax(axis=1), np.where(share < 0, NEVER, share).argmin(axis=1)
    busiest = by_rank.argmax(axis=1)
    on_busiest = np.where(tally.holds[at, busiest, :-1], share, -1)
    relieving = on_busiest.argmax(axis=1)
    needed = by_rank[at, busiest] > tally.mean + (tally.mean >> 6)
    chosen = np.where(needed & (on_busiest[at, relieving] >= 0), relieving, np.where(needed, heaviest, lightest))
    best: Ints = np.where(share[at, heaviest] > tally.mean, heaviest, chosen)
    return best


def _place(tally: Tally, wanted: Ints) -> None:
    """Put the wanted replicas on ranks with room, heaviest first, each on the least loaded that lacks it."""
    share, by_rank = _shares(tally, tally.counts + wanted)
    items, many = _heaviest_first(share, wanted)
    space, at = tally.space(), np.arange(tally.layers)
    free = np.argsort(tally.rows != EMPTY, axis=2, kind="stable")  # empty slots of a rank first, ascending
    used = np.zeros_like(space)
    for number in range(items.shape[1]):
        layer = at[many > number]
        expert = items[layer, number]
        open_ = (space[layer] > 0) & ~tally.holds[layer, :, expert]
        rank = np.where(open_, by_rank[layer], NEVER).argmin(axis=1)
        fits = open_[np.arange(len(layer)), rank]
        if not fits.all():
            layer, expert, rank = layer[fits], expert[fits], rank[fits]
        tally.rows[layer, rank, free[layer, rank, used[layer, rank]]] = expert
        tally.holds[layer, rank, expert] = True
        tally.counts[layer, expert] += 1
        used[layer, rank] += 1
        space[layer, rank] -= 1
        by_rank[layer, rank] += share[layer, expert]
    tally.refresh()


def _shares(tally: Tally, counts: Ints) -> tuple[Ints, Ints]:
    """Return (load per replica [layers, experts], load per rank [layers, ranks]) if there were so many replicas."""
    share = tally.load.astype(np.int64)
    share[:, :-1] //= np.maximum(counts, 1)
    by_rank: Ints = share[np.arange(tally.layers)[:, None, None], tally.rows].sum(axis=2)
    return share[:, :-1], by_rank


def _heaviest_first(share: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Return (experts of each layer, each as often as `times` says, heaviest share first, padded; how many)."""
    order = np.argsort(-share, axis=1, kind="stable")
    times = np.take_along_axis(times, order, axis=1)
    many = times.sum(axis=1)
    items = np.zeros((len(order), int(many.max(initial=0))), dtype=np.int64)
    items[np.arange(items.shape[1]) < many[:, None]] = np.repeat(order.ravel(), times.ravel())
    return items, many


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
