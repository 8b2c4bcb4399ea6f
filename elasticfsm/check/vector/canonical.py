"""One state for all that are alike, for whole columns: settled, without unheard messages, engines of a role sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elasticfsm.check.rank import Ranks
from elasticfsm.check.reduce import symmetry
from elasticfsm.check.successors import Successors
from elasticfsm.check.vector.kinds import UNSEEN, Column, Kind, Lazy, Whole
from elasticfsm.check.vector.memo import Join, Memo
from elasticfsm.check.vector.watched import Watched

SETTLED = (("settle",),)


class Canonical:
    """Canonical forms as the plain `symmetry`, `settled` and `heard_mail` have them for one state."""

    def __init__(self, plain: Successors, watched: Watched, kinds: Sequence[Kind]) -> None:
        world = plain.world
        self._kinds, self._count = kinds, world.count
        self._tails = range(world.count + 1, len(kinds))
        self._heard: Memo[tuple[int, ...]] = Memo(kinds, lambda refs: self._hear(watched, refs))
        self._rank = Lazy(Ranks(world).__getitem__)
        self._sort = symmetry(world)
        self._swaps = [
            (place, place + 1)
            for role in world.tables.roles
            for last in range(len(world.where[role]) - 1, 0, -1)
            for place in range(world.where[role][0] + 1, world.where[role][0] + 1 + last)
        ]
        self._join = Join(len(self._tails) + 2 * world.count)
        self._moved: dict[int, tuple[int, ...]] = {}

    def __call__(self, columns: list[Column]) -> list[Column]:
        """The columns of the canonical states; may change the columns that it is given."""
        for place in range(1, self._count + 1):
            columns[place] = self._kinds[place].changed(columns[place], SETTLED)
        busy = self._busy(columns)
        if busy.size:
            leaves = self._heard(columns, busy)
            for at, place in enumerate(self._tails):
                kept = np.array([leaf[at] for leaf in self._heard.leaves], np.intp)
                columns[place][busy] = kept.take(leaves)
        return self._sorted(columns) if self._swaps else columns

    def _busy(self, columns: list[Column]) -> Column:
        """The rows in which a message between engines is in flight."""
        some = np.zeros(len(columns[0]), bool)
        for place in self._tails:
            kind = self._kinds[place]
            assert isinstance(kind, Whole)
            some |= columns[place] != kind.number(0)
        return np.flatnonzero(some)

    def _hear(self, watched: Watched, refs: list[Any]) -> tuple[int, ...]:
        state = watched.heard_mail(tuple(refs))
        found = []
        for place in self._tails:
            kind = self._kinds[place]
            assert isinstance(kind, Whole)
            found.append(kind.number(int(state[place])))
        return tuple(found)

    def _sorted(self, columns: list[Column]) -> list[Column]:
        ranks = {place: self._rank(columns[place]) for swap in self._swaps for place in swap}
        wrong = np.zeros(len(columns[0]), bool)
        for first, second in self._swaps:
            if second == first + 1:
                wrong |= ranks[first] > ranks[second]
        busy = self._busy(columns)
        wrong[busy] = True
        rows = np.flatnonzero(wrong)
        if not rows.size:
            return columns
        part = [column.take(rows) for column in columns]
        after, order = self._swap(part, {place: rank.take(rows) for place, rank in ranks.items()})
        self._carry(part, after, order)
        for place, column in enumerate(after):
            columns[place][rows] = column
        return columns

    def _swap(self, columns: list[Column], ranks: dict[int, Column]) -> tuple[list[Column], list[Column]]:
        """Bubble sort of neighbouring columns by rank, and from which place each engine came."""
        after = list(columns)
        order = [np.full(len(columns[0]), place, np.intp) for place in range(len(columns))]
        for first, second in self._swaps:
            swap = ranks[first] > ranks[second]
            for lists in (after, order, ranks):
                one, two = lists[first], lists[second]
                lists[first], lists[second] = np.where(swap, two, one), np.where(swap, one, two)
        return after, order

    def _carry(self, before: list[Column], after: list[Column], order: list[Column]) -> None:
        """Moves the messages along: they follow from themselves, the order, and which engines stand alike."""
        busy = self._busy(before)
        if not busy.size:
            return
        engines = range(1, self._count + 1)
        alike = [(after[place] == after[place - 1]).astype(np.intp).take(busy) for place in engines]
        how = [*(before[place].take(busy) for place in self._tails), *(order[place].take(busy) for place in engines)]
        cases = self._join([*how, *alike])
        seen, first = np.unique(cases, return_index=True)
        for case, row in zip(seen.tolist(), busy.take(first).tolist(), strict=True):
            if case not in self._moved:
                self._moved[case] = self._plainly([int(column[row]) for column in before])
        for at, place in enumerate(self._tails):
            moved: Column = np.full(int(seen.max()) + 1, UNSEEN, np.intp)
            moved[seen] = [self._moved[case][at] for case in seen.tolist()]
            after[place][busy] = moved.take(cases)

    def _plainly(self, row: list[int]) -> tuple[int, ...]:
        kinds = [self._kinds[place] for place in self._tails]
        tails = [
            kind.values[row[place]] for place, kind in zip(self._tails, kinds, strict=True) if isinstance(kind, Whole)
        ]
        state = self._sort((*row[: self._count + 1], *tails))
        return tuple(
            kind.number(value)
            for kind, value in zip(kinds, state[self._count + 1 :], strict=True)
            if isinstance(kind, Whole)
        )
