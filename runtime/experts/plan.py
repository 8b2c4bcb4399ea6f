"""The rebalance policy's front door: from a placement and loads to the next placement, and to the rows to copy.

Pure and deterministic: integers and stable order throughout (policy/tally.py), so that equal input gives equal output
on every CPU. Rank 0 of a generation calls `plan` and broadcasts; everybody derives the same `moves`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elasticfsm.errors import PlacementError

from .placement import EMPTY, IntArray, Placement
from .policy.balanced import balanced
from .policy.bounded import bounded
from .policy.settings import Policy
from .policy.stages import within
from .policy.tally import Bools, held, in_place

LoadArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

DEFAULT_POLICY = Policy()


class Move(NamedTuple):
    """One expert row to copy: into slot `destination` from slot `source`, both physical, in one layer."""

    expert: int
    source: int
    destination: int


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
    usable = np.isin(np.arange(current.world_size), ranks)
    was = current.physical_to_logical.reshape(current.layers, current.world_size, -1)
    rows = bounded(was, loads, usable, policy) if policy.kind == "bounded" else _balanced(was, loads, usable, policy)
    if np.array_equal(rows, was):
        return current
    target = current.with_rows(rows.reshape(current.layers, -1), operation=operation)
    if policy.budget_rows:
        rows = within(current, target, loads, usable, policy.budget_rows)
        if np.array_equal(rows, was):
            return current
        target = current.with_rows(rows.reshape(current.layers, -1), operation=operation)
    return target.check()


def _balanced(was: IntArray, loads: LoadArray, usable: Bools, policy: Policy) -> IntArray:
    rows = np.full_like(was, EMPTY)
    rows[:, usable] = balanced(loads, int(usable.sum()), was.shape[2], policy.nodes, policy.groups)
    return in_place(was, held(rows, loads.shape[1]))


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


def rank_loads(placement: Placement, loads: npt.NDArray[Any]) -> FloatArray:
    """Return float64 [layers, ranks]: the load of each rank when every expert splits evenly over its replicas."""
    rows = placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)
    share = np.append(loads / np.maximum(placement.replicas, 1), np.zeros((placement.layers, 1)), axis=1)
    by_rank: FloatArray = share[np.arange(placement.layers)[:, None, None], rows].sum(axis=2)
    return by_rank


def moves(layer: int, old: Placement, new: Placement) -> list[Move]:
    """Return what must be copied so that a layer of `old` becomes that of `new`, in one fixed order.

    Sources are slots of `old`: on the receiver's own rank where it holds the expert, else on the holder that
    sends least so far (fewest choices first, then lowest rank). A source may itself be a destination: rows are
    read into staging buffers and written to their slots only when every rank has finished reading, so that
    every read sees the old row. Pure; every rank computes the same list. Raises PlacementError when `old` holds
    no copy of a needed expert.
    """
    return row_moves(layer, old.row(layer), new.row(layer), old.slots_per_rank)


def row_moves(layer: int, was: IntArray, now: IntArray, slots_per_rank: int) -> list[Move]:
    """As `moves`, from the contents of one layer to others, int32 [world_size * slots_per_rank] each."""
    wanted = [(int(now[slot]), int(slot)) for slot in np.flatnonzero((now != was) & (now != EMPTY))]
    holders = {expert: [int(slot) for slot in np.flatnonzero(was == expert)] for expert, _ in wanted}
    sent: Counter[int] = Counter()
    chosen = []
    for expert, destination in sorted(wanted, key=lambda w: (len(holders[w[0]]), w[1])):
        if not holders[expert]:
            raise PlacementError(f"layer {layer}: no rank holds expert {expert}, so slot {destination} cannot have it")
        source = _source(holders[expert], destination // slots_per_rank, slots_per_rank, sent)
        chosen.append(Move(expert, source, destination))
    return sorted(chosen, key=lambda move: move.destination)


def _source(holders: list[int], receiver: int, slots_per_rank: int, sent: Counter[int]) -> int:
    local = [slot for slot in holders if slot // slots_per_rank == receiver]
    if local:
        return local[0]
    source = min(holders, key=lambda slot: (sent[slot // slots_per_rank], slot))
    sent[source // slots_per_rank] += 1
    return source
