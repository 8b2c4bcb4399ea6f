"""The policy `balanced`: the best balance, whatever it moves. DeepSeek's expert-parallel load balancer, written anew.

The algorithm is DeepSeek's (EPLB, https://github.com/deepseek-ai/EPLB): replicate the expert with the most load per
replica until all slots are used, then pack replicas, heaviest first, onto the least loaded rank that has room. Its
hierarchical form packs groups of experts onto nodes first and then does the same within each node. Two things differ:
whole numbers and stable sorting give the same result everywhere, and no rank gets an expert twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from elasticfsm.errors import PlacementError

from ..placement import EMPTY, IntArray
from .tally import NEVER, Ints, weights


def balanced(loads: npt.NDArray[Any], ranks: int, slots: int, nodes: int = 1, groups: int = 1) -> IntArray:
    """Return contents int32 [layers, ranks, slots] for `loads`, counts [layers, experts]; -1 where nothing is gained.

    With one node it is global, else hierarchical: `groups` (a multiple of `nodes`) of consecutive experts stay each
    on one node; ranks of a node are consecutive. Pure. Raises PlacementError when sizes do not divide or slots lack.
    """
    layers, experts = loads.shape
    _refuse(experts, ranks, slots, nodes, groups)
    load = weights(loads).astype(np.int64)
    group = load.reshape(layers, groups, -1).sum(axis=2)
    node_of = pack(group, np.tile(np.arange(groups), (layers, 1)), nodes, groups // nodes)
    size = experts // groups
    local = (node_of[..., None] * size + np.arange(size)).reshape(layers * nodes, -1)  # experts of each node
    at = np.repeat(np.arange(layers), nodes)[:, None]
    mine = load[at, local]
    here = ranks // nodes
    counts = replicate(mine, here * min(slots, mine.shape[1]), here)
    order, share = _replicas(mine, counts)
    packed = pack(share, order, here, slots)
    named = np.take_along_axis(local, packed.reshape(len(packed), -1), axis=1).reshape(packed.shape)
    named = np.where(packed == EMPTY, EMPTY, named)
    rows: IntArray = named.reshape(layers, ranks, slots).astype(np.int32)
    return rows


def replicate(load: Ints, total: int, most: int) -> Ints:
    """Return replica counts int64 [rows, experts], each 1 to `most`, summing to `total`; water-filling on `load`."""
    counts = np.ones_like(load)
    share = load.copy() if most > 1 else np.full_like(load, -1)
    at = np.arange(len(load))
    for _ in range(min(total, most * load.shape[1]) - load.shape[1]):
        expert = share.argmax(axis=1)
        counts[at, expert] += 1
        used = counts[at, expert]
        share[at, expert] = np.where(used < most, load[at, expert] // used, -1)
    return counts


def pack(weight: Ints, item: Ints, packs: int, room: int) -> Ints:
    """Return items int64 [rows, packs, room], -1 = empty: heaviest first, each into the lightest pack with room.

    `weight` and `item` are [rows, n], n <= packs * room; equal items share no pack, if need be by moving another one.
    """
    rows, count = weight.shape
    order = np.argsort(-weight, axis=1, kind="stable")
    weight, item = np.take_along_axis(weight, order, axis=1), np.take_along_axis(item, order, axis=1)
    contents = np.full((rows, packs, room), EMPTY, dtype=np.int64)
    holds = np.zeros((rows, packs, int(item.max(initial=0)) + 2), dtype=bool)
    load, used = np.zeros((rows, packs), dtype=np.int64), np.zeros((rows, packs), dtype=np.int64)
    at = np.arange(rows)
    for number in range(count):
        what = item[:, number]
        open_ = (used < room) & ~holds[at, :, what] & (what != EMPTY)[:, None]
        chosen = np.where(open_, load, np.int64(NEVER) << 20).argmin(axis=1)
        fits = open_[at, chosen]
        row, where, put = at[fits], chosen[fits], what[fits]
        contents[row, where, used[row, where]] = put
        holds[row, where, put] = True
        used[row, where] += 1
        load[row, where] += weight[row, number]
        for stuck in np.flatnonzero(~fits & (what != EMPTY)):
            _squeeze(contents[stuck], holds[stuck], used[stuck], int(what[stuck]))
    return contents


def _squeeze(contents: Ints, holds: npt.NDArray[np.bool_], used: Ints, item: int) -> None:
    """Place an item that every pack with room holds: a full pack without it gives one of its own to one with room."""
    room = contents.shape[1]
    for full in np.flatnonzero(~holds[:, item]):
        for taker in np.flatnonzero(used < room):
            movable = [slot for slot in range(room) if not holds[taker, contents[full, slot]]]
            if movable:
                moved = contents[full, movable[-1]]
                contents[taker, used[taker]] = moved
                holds[taker, moved], holds[full, moved], holds[full, item] = True, False, True
                used[taker] += 1
                contents[full, movable[-1]] = item
                return


def _replicas(load: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return (expert, share) of every replica, int64 [rows, most replicas of a row], filled up with -1 and 0."""
    width = int(counts.sum(axis=1).max())
    order = np.full((len(load), width), EMPTY, dtype=np.int64)
    share = np.zeros_like(order)
    for row in range(len(load)):
        experts = np.repeat(np.arange(load.shape[1]), counts[row])
        order[row, : len(experts)] = experts
        share[row, : len(experts)] = (load[row] // counts[row])[experts]
    return order, share


def _refuse(experts: int, ranks: int, slots: int, nodes: int, groups: int) -> None:
    if nodes < 1 or groups < 1 or ranks % nodes or groups % nodes or experts % groups:
        raise PlacementError(
            f"{experts} experts in {groups} groups on {nodes} nodes with {ranks} ranks do not divide: expected "
            "experts as a multiple of groups, groups and ranks as multiples of nodes"
        )
    if (ranks // nodes) * slots < experts // nodes:
        raise PlacementError(f"{ranks} ranks x {slots} slots cannot hold {experts} experts")
