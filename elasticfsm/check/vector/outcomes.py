"""What transitions make of the numbers of a state, as templates: applied to all rows of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticfsm.check.transition import Interrupted, Transition
from elasticfsm.check.vector.kinds import Column, Kind, Whole
from elasticfsm.check.vector.memo import Memo
from elasticfsm.check.vector.views import Path, Ref, View, real

CONSTANT = -1  # instead of a place: the number itself
Made = tuple[int, Any]  # (place, changes), or (CONSTANT, number)


class Growing:
    """A column that is appended to."""

    def __init__(self, dtype: type = np.intp) -> None:
        self._all: NDArray[Any] = np.zeros(64, dtype)
        self.size = 0

    def extend(self, values: Sequence[int]) -> None:
        """Appends some values."""
        while self.size + len(values) > len(self._all):
            self._all = np.concatenate([self._all, np.zeros_like(self._all)])
        self._all[self.size : self.size + len(values)] = values
        self.size += len(values)

    @property
    def column(self) -> NDArray[Any]:
        """What was appended so far."""
        return self._all[: self.size]


class Batch(NamedTuple):
    """Transitions: from which row, by which template, the mover's next local state, tag, what is bad."""

    rows: Column
    template: Column
    target: Column
    tag: NDArray[np.uint16]
    bad: NDArray[np.uint16]


class Templates:
    """Every way in which a transition was seen to change a state, numbered."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        self.width = len(kinds)  # the column after the last one is the mover's next local state
        self._made: list[dict[Made, int]] = [{(place, ()): 0} for place in range(self.width)]
        self._numbers: dict[tuple[int, ...], int] = {}
        self._columns = [Growing(np.uint16) for _ in range(self.width)]

    def number(self, target: Sequence[Any]) -> int:
        """The template of a target state that holds a `Ref` wherever it depends on the state."""
        made = tuple(self._of(place, value) for place, value in enumerate(target))
        return self._numbered(made)

    def mover(self, place: int) -> int:
        """The template by which only one number changes, to the mover's next local state."""
        return self._numbered(tuple((self.width, ()) if other == place else (other, ()) for other in range(self.width)))

    def apply(self, columns: Sequence[Column], batch: Batch) -> list[Column]:
        """The columns of the target states."""
        return [self._column(place, columns, batch) for place in range(self.width)]

    def _numbered(self, made: tuple[Made, ...]) -> int:
        key = tuple(known.setdefault(one, len(known)) for known, one in zip(self._made, made, strict=True))
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            for column, one in zip(self._columns, key, strict=True):
                column.extend([one])
        return self._numbers[key]

    def _of(self, place: int, value: Any) -> Made:
        if isinstance(value, Ref):
            return value.place, value.chain
        kind, plain = self.kinds[place], real(value) if isinstance(value, View) else value
        return CONSTANT, kind.number(plain) if isinstance(kind, Whole) else int(plain)

    def _column(self, place: int, columns: Sequence[Column], batch: Batch) -> Column:
        found = columns[place].take(batch.rows)
        made = self._columns[place].column.take(batch.template)
        changed = np.flatnonzero(made)
        if not changed.size:
            return found
        sort = np.argsort(made.take(changed), kind="stable")
        order = changed.take(sort)
        numbers, starts = np.unique(made.take(order), return_index=True)
        listed = list(self._made[place])
        for number, at in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            source, how = listed[number]
            if source == CONSTANT:
                found[at] = how
            else:
                before = batch.target.take(at) if source == self.width else columns[source].take(batch.rows.take(at))
                found[at] = self.kinds[place].changed(before, how)
        return found


class Outcomes:
    """A function that says transitions, for whole columns; its moves and bad properties are numbered by `index`."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        templates: Templates,
        function: Callable[[list[Any]], list[Transition]],
        index: Callable[[Transition], tuple[int, int]],
    ) -> None:
        self._templates, self._function, self._index = templates, function, index
        self._memo: Memo[bool] = Memo(kinds, self._once)
        self._starts, self.counts = Growing(), Growing()
        self._template, self._move = Growing(), Growing()
        self._tag, self._bad = Growing(np.uint16), Growing(np.uint16)

    def __call__(self, columns: Sequence[Column], rows: Column, *last: Column) -> Column:
        """For each of these rows its leaf: `counts` says how many transitions that has, `expand` lists them."""
        leaves = self._memo(columns, rows, *last)
        if leaves.size and self.counts.column.take(leaves).min() < 0:
            raise Interrupted
        return leaves

    def expand(self, rows: Column, leaves: Column, target: Column) -> Batch:
        """The transitions of these rows; `target` is the mover's next local state, if the function is of a mover."""
        counts = self.counts.column.take(leaves)
        if counts.min(initial=1) == counts.max(initial=1) == 1:  # then every row has one
            at = self._starts.column.take(leaves)
        else:
            source, at = spread(self._starts.column.take(leaves), counts)
            rows, target = rows.take(source), target.take(source) if target.size else target
        target = target if target.size else np.zeros(len(rows), np.intp)
        return Batch(rows, self._template.column.take(at), target, self._tag.column.take(at), self._bad.column.take(at))

    def moves(self, leaves: Column) -> set[int]:
        """The moves that the function named in these leaves."""
        return {
            int(move)
            for leaf in np.unique(leaves).tolist()
            for move in self._move.column[self._starts.column[leaf] :][: self.counts.column[leaf]]
        }

    def _once(self, refs: list[Any]) -> bool:
        self._starts.extend([self._template.size])
        try:
            found = self._function(refs)
        except Interrupted:
            self.counts.extend([-1])
            return False
        self.counts.extend([len(found)])
        for transition in found:
            move, bad = self._index(transition)
            self._template.extend([self._templates.number(transition.target)])
            self._move.extend([move])
            self._tag.extend([transition.tag])
            self._bad.extend([bad])
        return True


def spread(starts: Column, counts: Column) -> tuple[Column, Column]:
    """For slices given by starts and counts: to which slice each element belongs, and where it stands."""
    source = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    at = np.arange(len(source)) + np.repeat(starts - ends + counts, counts)
    return source, at


def joined(batches: list[Batch]) -> Batch:
    """Several batches as one."""
    if not batches:
        empty = np.zeros(0, np.intp)
        return Batch(empty, empty, empty, empty.astype(np.uint16), empty.astype(np.uint16))
    return Batch(*(np.concatenate([batch[place] for batch in batches]) for place in range(len(Batch._fields))))


__all__ = ["Batch", "Growing", "Outcomes", "Path", "Templates", "joined", "spread"]
