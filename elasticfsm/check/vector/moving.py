"""All transitions out of many states: what depends on one engine is looked up, what depends on several is a memo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.faults import Faults
from elasticfsm.check.move import Move
from elasticfsm.check.successors import Successors
from elasticfsm.check.transition import Transition
from elasticfsm.check.vector.kinds import UNSEEN, Column, Kind, Lazy
from elasticfsm.check.vector.outcomes import Batch, Growing, Outcomes, Templates, joined, spread
from elasticfsm.check.vector.watched import Watched


class Moves:
    """Every move that was looked up, numbered, and every set of properties that one refutes."""

    def __init__(self) -> None:
        self.moves: list[Move | BossMove] = []
        self.bad: list[tuple[str, ...]] = [()]
        self._numbers: dict[int, int] = {}
        self._shapes: dict[Move, int] = {}
        self.shapes: list[Move] = []

    def number(self, move: Move | BossMove) -> int:
        """The number of a move."""
        found = self._numbers.get(id(move))
        if found is None:
            found = self._numbers[id(move)] = len(self.moves)
            self.moves.append(move)
        return found

    def broken(self, names: tuple[str, ...]) -> int:
        """The number of a set of properties; 0 is none."""
        if names not in self.bad:
            self.bad.append(names)
        return self.bad.index(names)

    def shape(self, move: Move) -> int:
        """The number of what others make of a move: the move without its texts, its edges and its target."""
        bare = replace(move, target=None, text="", verb="", edges=())  # type: ignore[arg-type]
        found = self._shapes.get(bare)
        if found is None:
            found = self._shapes[bare] = len(self.shapes)
            self.shapes.append(bare)
        return found


class Listed(NamedTuple):
    """Moves of some rows, one line each: row, next local state, shape, number of the move."""

    rows: Column
    target: Column
    shape: Column
    move: Column


class Lists:
    """The moves of one sort that each local state has."""

    def __init__(self, moves: Moves, of: Callable[[int], Sequence[tuple[int, Move]]]) -> None:
        self._moves, self._of = moves, of
        self._starts = Lazy(self._learn)
        self._counts = Growing()
        self._target, self._shape, self._move = Growing(), Growing(), Growing()
        self._first = Growing()

    def count(self, numbers: Column) -> Column:
        """How many moves these local states have."""
        lists = self._starts(numbers)  # first: this may append to the other columns
        return self._counts.column.take(lists)

    def listed(self, numbers: Column, rows: Column) -> Listed:
        """All moves of these local states, which stand in these rows."""
        lists = self._starts(numbers)
        source, at = spread(self._first.column.take(lists), self._counts.column.take(lists))
        return self._lines(rows.take(source), at)

    def one(self, numbers: Column, rows: Column, which: int) -> Listed:
        """The move at place `which` of these local states; all of them have it."""
        lists = self._starts(numbers)
        return self._lines(rows, self._first.column.take(lists) + which)

    def _lines(self, rows: Column, at: Column) -> Listed:
        return Listed(rows, self._target.column.take(at), self._shape.column.take(at), self._move.column.take(at))

    def _learn(self, number: int) -> int:
        found = self._of(number)
        self._first.extend([self._target.size])
        self._counts.extend([len(found)])
        self._target.extend([target for target, _ in found])
        self._shape.extend([self._moves.shape(move) for _, move in found])
        self._move.extend([self._moves.number(move) for _, move in found])
        return self._first.size - 1


class Moving:
    """The transitions of whole columns of states, as the plain `Successors` has them for one."""

    def __init__(self, plain: Successors, kinds: Sequence[Kind]) -> None:
        self.plain, self.kinds = plain, list(kinds)
        self.watched = Watched(plain)
        self.templates = Templates(self.kinds)
        self.moves = Moves()
        self.count = plain.world.count
        self._plain = Lists(self.moves, lambda number: plain.known[number].plain)
        self._open = Lists(self.moves, lambda number: plain.known[number].open)
        self._alone = Lists(self.moves, lambda number: plain.known[number].alone)
        self._orders = self._outcomes(lambda refs: self._around(refs, self.watched.orders(tuple(refs))))
        self._beyond = self._outcomes(lambda refs: self._faults().beyond(tuple(refs)))
        self._boss_alone = self._outcomes(lambda refs: _listed(self.watched.boss_alone(tuple(refs))))
        self._opened: dict[tuple[int, int], Outcomes] = {}
        self._single: dict[tuple[int, int], Outcomes] = {}
        self._tags, self._bad = Growing(np.uint16), Growing(np.uint16)
        self.fired: set[int] = set()  # the numbers of moves that were made; of those in `plain` the local states tell

    def all(self, columns: Sequence[Column], rows: Column) -> list[Batch]:
        """Every transition out of the states in these rows."""
        none = np.zeros(0, np.intp)
        found: list[Batch] = []
        if self.plain.world.operation:
            leaves = self._orders(columns, rows)
            self.fired |= self._orders.moves(leaves)
            some = np.flatnonzero(self._orders.counts.column.take(leaves))
            found.append(self._orders.expand(rows.take(some), leaves.take(some), none))
        for who in range(self.count):
            numbers = columns[who + 1].take(rows)
            found.append(self._plainly(who, self._plain.listed(numbers, rows)))
            found += self._grouped(self._opened, self._every, columns, who, self._open.listed(numbers, rows))
        if self.plain.faults is not None:
            leaves = self._beyond(columns, rows)
            self.fired |= self._beyond.moves(leaves)
            found.append(self._beyond.expand(rows, leaves, none))
        return found

    def _around(self, refs: Sequence[Any], found: list[Transition]) -> list[Transition]:
        """These transitions and what may go wrong in them."""
        return found if self.plain.faults is None else self._faults().around(tuple(refs), found)

    def _faults(self) -> Faults:
        if self.watched.faults is None:
            raise ValueError("this regime knows no faults")
        return self.watched.faults

    def alone(self, columns: Sequence[Column]) -> tuple[list[Batch], Column]:
        """Moves explored alone, at most one a row, and the rows that have none."""
        none = np.zeros(0, np.intp)
        left = np.arange(len(columns[0]))
        found: list[Batch] = []
        for who in range(self.count):
            numbers = columns[who + 1].take(left)
            counts = self._alone.count(numbers)
            taken: NDArray[np.bool_] = np.zeros(len(left), bool)
            for which in range(int(counts.max(initial=0))):
                at = np.flatnonzero((counts > which) & ~taken)
                listed = self._alone.one(numbers.take(at), left.take(at), which)
                for part, leaves in self._by_shape(self._single, self._one, columns, who, listed):
                    function = self._single[who, int(listed.shape[part[0]])]
                    some = np.flatnonzero(function.counts.column.take(leaves))
                    taken[at.take(part.take(some))] = True
                    found.append(self._expand(function, listed, part.take(some), leaves.take(some)))
            left = left.take(np.flatnonzero(~taken))
        if self.plain.safe and self.plain.world.operation and left.size:
            leaves = self._boss_alone(columns, left)
            self.fired |= self._boss_alone.moves(leaves)
            counts = self._boss_alone.counts.column.take(leaves)
            at = np.flatnonzero(counts)
            found.append(self._boss_alone.expand(left.take(at), leaves.take(at), none))
            left = left.take(np.flatnonzero(counts == 0))
        return found, left

    def targets(self, columns: Sequence[Column], batches: list[Batch]) -> tuple[Batch, list[Column]]:
        """All batches as one, and the columns of the target states."""
        batch = joined(batches)
        return batch, self.templates.apply(columns, batch)

    def _plainly(self, who: int, listed: Listed) -> Batch:
        self._number_moves()
        template = np.full(len(listed.rows), self.templates.mover(who + 1), np.intp)
        tag, bad = self._tags.column.take(listed.move), self._bad.column.take(listed.move)
        return Batch(listed.rows, template, listed.target, tag, bad)

    def _number_moves(self) -> None:
        for move in self.moves.moves[self._tags.size :]:
            self._tags.extend([move.tag])
            self._bad.extend([self.moves.broken(move.bad)])

    def _grouped(
        self,
        functions: dict[tuple[int, int], Outcomes],
        make: Callable[[int, Move], Outcomes],
        columns: Sequence[Column],
        who: int,
        listed: Listed,
    ) -> list[Batch]:
        found = []
        for part, leaves in self._by_shape(functions, make, columns, who, listed):
            function = functions[who, int(listed.shape[part[0]])]
            found.append(self._expand(function, listed, part, leaves))
        return found

    def _by_shape(
        self,
        functions: dict[tuple[int, int], Outcomes],
        make: Callable[[int, Move], Outcomes],
        columns: Sequence[Column],
        who: int,
        listed: Listed,
    ) -> list[tuple[Column, Column]]:
        """For moves of one shape after the other: which lines they are, and the leaf of each."""
        found: list[tuple[Column, Column]] = []
        if not listed.rows.size:
            return found
        narrow = listed.shape if len(self.moves.shapes) > 1 << 16 else listed.shape.astype(np.uint16)
        order = np.argsort(narrow, kind="stable")  # 16 bits are sorted by radix
        shapes, starts = np.unique(listed.shape.take(order), return_index=True)
        for shape, part in zip(shapes.tolist(), np.split(order, starts[1:]), strict=True):
            if (who, shape) not in functions:
                functions[who, shape] = make(who, self.moves.shapes[shape])
            rows = listed.rows.take(part)
            found.append((part, functions[who, shape](columns, rows, listed.target.take(part))))
        return found

    def _expand(self, function: Outcomes, listed: Listed, part: Column, leaves: Column) -> Batch:
        happen = np.flatnonzero(function.counts.column.take(leaves))
        if len(happen) < len(part):
            part, leaves = part.take(happen), leaves.take(happen)
        self.fired.update(np.unique(listed.move.take(part)).tolist())
        return function.expand(listed.rows.take(part), leaves, listed.target.take(part))

    def _every(self, who: int, move: Move) -> Outcomes:
        def opened(refs: Sequence[Any]) -> list[Transition]:
            return self._around(refs[:-1], self.watched.open(tuple(refs[:-1]), who, refs[-1], move))

        return self._outcomes(opened, mover=True)

    def _one(self, who: int, move: Move) -> Outcomes:
        return self._outcomes(
            lambda refs: _listed(self.watched.single(tuple(refs[:-1]), who, refs[-1], move)), mover=True
        )

    def _outcomes(self, function: Callable[[list[Any]], list[Transition]], mover: bool = False) -> Outcomes:
        kinds = [*self.kinds, self.kinds[1]] if mover else self.kinds

        def index(transition: Transition) -> tuple[int, int]:
            return UNSEEN if mover else self.moves.number(transition.move), self.moves.broken(transition.bad)

        return Outcomes(kinds, self.templates, function, index)


def _listed(found: Transition | None) -> list[Transition]:
    return [] if found is None else [found]
