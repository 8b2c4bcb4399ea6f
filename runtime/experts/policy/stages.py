"""A change cut into parts that may be made one after the other: what must be, then most gain per row, in a budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..placement import EMPTY, IntArray, Placement
from .bounds import busiest, moved
from .tally import Bools, held

Row = npt.NDArray[np.int32]  # [ranks, slots] of one layer
Place = tuple[int, int]  # rank, slot
_TRIED = 8  # joint changes that are compared before one is made


def ordered(current: Placement, target: Placement, loads: npt.NDArray[Any]) -> list[int]:
    """Return the layers that change, in the order in which they should: uncovered experts first, then gain per row.

    The gain is what the busiest rank loses, `loads` being counts [layers, experts]. Ties go to the lower layer. Pure.
    """
    was, will = _by_rank(current), _by_rank(target)
    changed = np.flatnonzero((was != will).any(axis=(1, 2)))
    rows = np.maximum(moved(was, will, current.experts).sum(axis=1), 1)
    gain = np.floor(busiest(was, loads) - busiest(will, loads)).astype(np.int64)
    per_row = (gain * 1024) // rows
    bare = (current.replicas == 0).sum(axis=1)
    return sorted((int(layer) for layer in changed), key=lambda layer: (-int(bare[layer]), -int(per_row[layer]), layer))


def within(current: Placement, target: Placement, loads: npt.NDArray[Any], usable: Bools, budget: int) -> IntArray:
    """Return what of `target` may be made with `budget` rows moved, int32 [layers, ranks, slots].

    What must be (experts without a replica on usable ranks, leaving ranks emptied) is made even if it takes more.
    Layers follow `ordered`; every expert that `target` covers is covered.
    """
    rows, goal = _by_rank(current).copy(), _by_rank(target)
    left = budget
    layers = ordered(current, target, loads)
    for urgent in (True, False):
        for layer in layers:
            for part in units(rows[layer], goal[layer], usable, urgent=urgent):
                cost = _cost(rows[layer], part, current.experts)
                if not urgent and cost > left:
                    break
                rows[layer] = part
                left -= cost
    rows[:, ~usable] = EMPTY
    return rows


def stages(current: Placement, target: Placement, loads: npt.NDArray[Any], rows_per_stage: int) -> Iterator[Placement]:
    """Yield the placements on the way to `target`, each at most `rows_per_stage` moved rows after the one before it.

    Only experts that must be exchanged at once may take more. Every one covers what `current` and `target` cover.
    """
    everywhere = np.ones(current.world_size, dtype=bool)
    at, spent = current, 0
    rows = _by_rank(current).copy()
    for layer in ordered(current, target, loads):
        for part in units(rows[layer], _by_rank(target)[layer], everywhere):
            cost = _cost(rows[layer], part, current.experts)
            if spent and spent + cost > rows_per_stage:
                at, spent = at.with_rows(rows.reshape(current.layers, -1)), 0
                yield at
            rows[layer], spent = part, spent + cost
    if (at.physical_to_logical != target.physical_to_logical).any():
        yield at.with_rows(rows.reshape(current.layers, -1))


def parts(row: Row, goal: Row, experts: int, rows_per_part: int) -> list[Row]:
    """Return contents of one layer on the way to `goal`, the last one, each at most so many moved rows after another.

    As `stages` for a single layer: only experts that must be exchanged at once may take more, and every one covers what
    `row` and `goal` cover. Pure.
    """
    everywhere = np.ones(len(row), dtype=bool)
    found: list[Row] = []
    at, spent = row, 0
    for unit in units(row, goal, everywhere):
        cost = _cost(at, unit, experts)
        if spent and spent + cost > rows_per_part:
            found, spent = [*found, at], 0
        at, spent = unit, spent + cost
    return [*found, at]


def units(row: Row, goal: Row, usable: Bools, *, urgent: bool = False) -> Iterator[Row]:
    """Yield the contents of one layer after each smallest change on the way to `goal`; with `urgent` only what must be.

    A change is one slot whose expert is elsewhere too, or several that have to change at once. Slots on ranks that are
    not usable are given up last.
    """
    now = row.copy()
    while True:
        open_ = [(int(rank), int(slot)) for rank, slot in np.argwhere(now != goal)]
        lacking = _experts(goal) - _experts(now[usable])
        if urgent:
            wanted = [place for place in open_ if int(goal[place]) in lacking]
        else:
            wanted = sorted(open_, key=lambda place: (not usable[place[0]], now[place] != EMPTY, place))
        if not wanted:
            return
        now = _change(_Change(now, goal, usable), wanted, open_)
        yield now


@dataclass(frozen=True)
class _Change:
    """One layer on its way from `now` to `goal`."""

    now: Row
    goal: Row
    usable: Bools

    def made(self, places: list[Place]) -> Row:
        """Return the contents after these slots have changed."""
        after = self.now.copy()
        for place in places:
            after[place] = self.goal[place]
        return after

    def lost(self, places: list[Place]) -> set[int]:
        """Return the experts that lose their last replica, or their last one on usable ranks."""
        after = self.made(places)
        stays = _experts(self.now[self.usable]) - _experts(after[self.usable])
        return stays | (_experts(self.now) - _experts(after))

    def fine(self, places: list[Place]) -> bool:
        """Whether no expert is lost and no rank gets a second replica of one."""
        after = self.made(places)
        ranks = (after[rank][after[rank] != EMPTY] for rank in {rank for rank, _ in places})
        return not self.lost(places) and all(len(held) == len(np.unique(held)) for held in ranks)

    def joint(self, first: Place, open_: list[Place]) -> Row:
        """Return the contents after `first` and what must change with it: who takes over what it gives up."""
        together = [first]
        while not self.fine(together):
            lost = self.lost(together)
            more = [place for place in open_ if place not in together]
            in_the_way = [place for place in more if self._blocks(place, together)]
            takes_over = [place for place in more if int(self.goal[place]) in lost and self.usable[place[0]]]
            found = in_the_way or takes_over
            if not found:
                return self.goal.copy()
            together.append(found[0])
        return self.made(together)

    def _blocks(self, place: Place, together: list[Place]) -> bool:
        return any(self.now[place] == self.goal[at] and at[0] == place[0] for at in together)


def _change(change: _Change, wanted: list[Place], open_: list[Place]) -> Row:
    """Return the contents after the first single change that is allowed, else after the smallest joint one."""
    for place in wanted:
        if change.fine([place]):
            return change.made([place])
    joint = (change.joint(place, open_) for place in wanted[:_TRIED])
    return min(joint, key=lambda row: int((row != change.now).sum()))


def _experts(row: Row) -> set[int]:
    return set(row[row != EMPTY].tolist())


def _cost(before: Row, after: Row, experts: int) -> int:
    return int((held(after[None], experts) & ~held(before[None], experts)).sum())


def _by_rank(placement: Placement) -> IntArray:
    rows: IntArray = placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)
    return rows
