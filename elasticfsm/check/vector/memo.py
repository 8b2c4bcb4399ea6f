"""A function of a state, run by the plain code once for all states that look alike to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from elasticfsm.check.vector.kinds import UNSEEN, Classes, Column, Kind, Question, Whole
from elasticfsm.check.vector.views import Path, Ref, Step, follow

T = TypeVar("T")


class Join:
    """Numbers for the combinations of small numbers that were seen: one column after the other, each a table."""

    def __init__(self, width: int) -> None:
        self._tables: list[NDArray[np.int32]] = [np.full((1, 1), UNSEEN, np.int32) for _ in range(width)]
        self.counts = [1, *[0] * width]

    def __call__(self, columns: Sequence[Column]) -> Column:
        """For each row the number of its combination."""
        prefix: Column = np.zeros(len(columns[0]) if columns else 0, np.intp)
        for place, column in enumerate(columns):
            prefix = self._step(place, prefix, column)
        return prefix

    def _step(self, place: int, prefix: Column, column: Column) -> Column:
        table = self._tables[place]
        rows, width = max(self.counts[place], 1), int(column.max(initial=0)) + 1
        if rows > table.shape[0] or width > table.shape[1]:
            table = self._grow(place, rows, width)
        at = prefix * table.shape[1] + column
        flat = table.reshape(-1)
        found = flat.take(at)
        if found.size and found.min() == UNSEEN:
            new = np.unique(at[found == UNSEEN])
            count = self.counts[place + 1]
            flat[new] = np.arange(count, count + len(new))
            self.counts[place + 1] = count + len(new)
            found = flat.take(at)
        wide: Column = found.astype(np.intp)
        return wide

    def _grow(self, place: int, rows: int, width: int) -> NDArray[np.int32]:
        old = self._tables[place]
        height = old.shape[0] if rows <= old.shape[0] else max(rows, 2 * old.shape[0])
        breadth = old.shape[1] if width <= old.shape[1] else max(width, 2 * old.shape[1])
        table = np.full((height, breadth), UNSEEN, np.int32)
        table[: old.shape[0], : old.shape[1]] = old
        self._tables[place] = table
        return table


class Memo(Generic[T]):
    """What `function` says of states, given as columns of numbers; `leaves[number]` is what it said.

    The function gets a list with a `Ref` for each column. Two rows have the same number if they give the same answers
    to every question that it ever asked in this memo, and so to all that it asked on the row on which it was run.
    """

    def __init__(self, kinds: Sequence[Kind], function: Callable[[list[Any]], T]) -> None:
        self._kinds, self._function = kinds, function
        self._questions: list[tuple[Question, ...]] = [()] * len(kinds)
        self.leaves: list[T] = []
        self._rows: list[list[int]] = []  # for each leaf the row on which the function was run
        self._looked: list[tuple[int, Classes]] = []
        self._join = Join(0)
        self._leaf: NDArray[np.intp] = np.full(1, UNSEEN, np.intp)

    def __call__(self, columns: Sequence[Column], rows: Column, *last: Column) -> Column:
        """For each of these rows the number of its leaf; `last` are columns that have these rows only."""
        if not rows.size:
            return rows
        while True:
            alike = self._alike(columns, rows, last)
            found = self._leaf.take(alike)
            if found.min() != UNSEEN:
                return found
            unseen = np.flatnonzero(found == UNSEEN)
            _, first = np.unique(alike[unseen], return_index=True)
            for at in unseen[first].tolist():
                if self._run([*(int(column[rows[at]]) for column in columns), *(int(column[at]) for column in last)]):
                    break
                self._leaf[alike[at]] = len(self.leaves) - 1

    def _alike(self, columns: Sequence[Column], rows: Column, last: Sequence[Column]) -> Column:
        width = len(columns)
        if self._looked:
            alike = self._join(
                [
                    classes(columns[place].take(rows) if place < width else last[place - width])
                    for place, classes in self._looked
                ]
            )
        else:
            alike = np.zeros(len(rows), np.intp)
        if self._join.counts[-1] > len(self._leaf):
            more = np.full(2 * self._join.counts[-1], UNSEEN, np.intp)
            more[: len(self._leaf)] = self._leaf
            self._leaf = more
        return alike

    def _run(self, row: list[int]) -> bool:
        """Runs the function on one row; true if it asked something new, and so all classes changed."""
        asked: list[dict[Question, None]] = [dict.fromkeys(old) for old in self._questions]
        before = sum(map(len, asked))

        def note(place: int, chain: Path, path: Path) -> None:
            asked[place][chain, path] = None

        refs = [self._ref(note, place, number) for place, number in enumerate(row)]
        self.leaves.append(self._function(refs))
        self._rows.append(row)
        if sum(map(len, asked)) == before:
            return False
        self._questions = [tuple(questions) for questions in asked]
        self._looked = [
            (place, self._kinds[place].classes(questions))
            for place, questions in enumerate(self._questions)
            if questions
        ]
        self._join, self._leaf = Join(len(self._looked)), np.full(64, UNSEEN, np.intp)
        known = list(np.array(self._rows, np.intp).T)
        alike = self._alike(known, np.arange(len(self._rows)), ())
        self._leaf[alike] = np.arange(len(self.leaves))
        return True

    def _ref(self, note: Callable[[int, Path, Path], None], place: int, number: int) -> Ref:
        kind = self._kinds[place]
        if isinstance(kind, Whole):
            return Ref(note, place, (), kind.values[number], whole)
        return Ref(note, place, (), number, kind.change)


def whole(value: int, step: Step) -> int:
    """One operation of arithmetic on an integer itself."""
    return int(follow(value, (step,)))
