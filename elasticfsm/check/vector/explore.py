"""Breadth-first search by levels: each level is a few columns of numbers, explored in parts that fit the cache."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from elasticfsm.check.explore import settled_form
from elasticfsm.check.forget import Forget
from elasticfsm.check.move import ENVIRONMENT
from elasticfsm.check.reduce import Alone
from elasticfsm.check.service import Service
from elasticfsm.check.successors import Successors
from elasticfsm.check.transition import Interrupted
from elasticfsm.check.vector.canonical import Canonical
from elasticfsm.check.vector.judging import Judging
from elasticfsm.check.vector.kinds import Column, Coordinators, Engines, Kind, Whole
from elasticfsm.check.vector.levels import Levels, States
from elasticfsm.check.vector.moving import Moving
from elasticfsm.check.vector.outcomes import Batch
from elasticfsm.check.vector.visited import Visited
from elasticfsm.check.world import CALM, World
from elasticfsm.errors import CheckerError

PART = 1 << 17  # rows of a level that are explored together


def explore(
    world: World,
    reduced: bool = True,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    bold: bool = True,
    alone: bool = True,
    enough: int | None = None,
) -> Levels:
    """Explores a world like the plain `explore`, to the end or up to `limit` states; `enough`: see there."""
    world.forget = Forget(world) if reduced else None
    world.bold = reduced and bold and not world.regime.faults
    plain = Successors(world, Alone(world) if reduced and alone else None)
    search = _Search(world, plain, reduced)
    try:
        search.run(limit, progress, enough)
    except Interrupted:
        again = World(world.program, world.sizes, world.regime)
        return explore(again, reduced, limit, progress, bold=False, alone=alone, enough=enough)
    return search.graph


class _Search:
    """One search and the graph that it builds."""

    def __init__(self, world: World, plain: Successors, reduced: bool) -> None:
        form = settled_form(world, plain) if reduced else lambda state: state
        self.first = form(world.initial())
        engines = Engines(plain)
        tails = len(self.first) - 1 - world.count
        kinds: list[Kind] = [Coordinators(plain), *[engines] * world.count, *(Whole() for _ in range(tails))]
        self.visited = Visited(len(kinds))
        states: Any = States(self.visited, kinds)
        self.graph = Levels(world, plain, form, reduced, states=states, found=states)
        self.graph.service = Service(world, plain.known) if world.regime.faults and world.operation else None
        self.moving = Moving(plain, kinds)
        alarmed = world.bold and world.regime == CALM
        self.judging = Judging(self.graph, self.moving.watched, kinds, alarmed)
        self.canonical = Canonical(plain, self.moving.watched, kinds) if reduced else None
        self.kinds, self.reduced = kinds, reduced
        self.parents: list[Column] = [np.array([-1], np.int32)]
        self.compare_at = 0  # the number of the next state whose transitions are compared with those of the plain code

    def run(self, limit: int | None, progress: Callable[[int], None] | None, enough: int | None) -> None:
        """Explores level by level."""
        row = [
            kind.number(value) if isinstance(kind, Whole) else value
            for kind, value in zip(self.kinds, self.first, strict=True)
        ]
        self.visited.add([np.array([number], np.intp) for number in row])
        start = 0
        while start < self.visited.count:
            stop = min(self.visited.count, start + PART)
            self._part(start, stop)
            start = stop
            if progress is not None:
                progress(self.visited.count)
            if (limit is not None and self.visited.count > limit) or self._ended(enough):
                self.graph.complete = False
                break
        self._finish()

    def _ended(self, enough: int | None) -> bool:
        return enough is not None and bool(self.graph.refuted) and self.visited.count > enough

    def _part(self, start: int, stop: int) -> None:
        columns = self.visited.columns(start, stop)
        batches: list[Batch] = []
        rows: Column = np.arange(stop - start)
        if self.reduced and self.moving.plain.faults is None:
            batches, rows = self.moving.alone(columns)
        if rows.size:
            batches += self.moving.all(columns, rows)
        batch, targets = self.moving.targets(columns, batches)
        moving: Column = np.zeros(stop - start, np.intp)
        moving[batch.rows[batch.tag & ENVIRONMENT == 0]] = 1
        self.judging(start, columns, moving)
        self._broken(start, batch)
        if self.canonical is not None:
            targets = self.canonical(targets)
        if start >= self.compare_at:
            self._compare(start, batch, targets)
            self.compare_at = start + (start >> 2)
        numbers, fresh = self.visited.add(targets)
        sources = batch.rows + start
        self.parents.append(sources.take(fresh).astype(np.int32))
        self.graph.edges.add(sources, numbers, batch.tag)

    def _compare(self, start: int, batch: Batch, targets: list[Column]) -> None:
        """Holds the transitions of one state against those of the plain code; raises `CheckerError` if they differ."""
        plain, state = self.graph.successors, self.graph.states[start]
        alone = plain.alone(state) if self.reduced else None
        expected = sorted(
            (self.graph.canonical(one.target), one.tag) for one in ([alone] if alone else plain.all(state))
        )
        rows = np.flatnonzero(batch.rows == 0).tolist()
        ours = sorted(
            (States.row(self.kinds, [int(column[row]) for column in targets]), int(batch.tag[row])) for row in rows
        )
        if ours != expected:
            raise CheckerError(
                f"the vectorised explorer found {len(ours)} transitions out of state {start} of "
                f"{self.graph.world.program.name}, the plain one {len(expected)}, or others: use --engine plain, "
                "and report this"
            )

    def _broken(self, start: int, batch: Batch) -> None:
        """Notes the first transition of each set of properties that transitions refute."""
        bad = np.flatnonzero(batch.bad)
        for number in np.unique(batch.bad.take(bad)).tolist():
            row = int(batch.rows.take(bad[batch.bad.take(bad) == number]).min())
            for name in self.moving.moves.bad[number]:
                place = start + row
                if name not in self.graph.refuted or self.graph.refuted[name][0] > place:
                    self.graph.refuted[name] = (place, self._transition(place, name))

    def _transition(self, place: int, name: str) -> Any:
        """The transition out of a state that refutes a property, from the plain code."""
        state, plain = self.graph.states[place], self.graph.successors
        alone = plain.alone(state) if self.reduced else None
        return next(one for one in ([alone] if alone else plain.all(state)) if name in one.bad)

    def _finish(self) -> None:
        graph = self.graph
        graph.parents = array("l")
        graph.parents.frombytes(np.concatenate(self.parents).astype(np.int64).tobytes())
        moves = self.moving.moves.moves
        graph.fired = {id(moves[number]) for number in self.moving.fired}
