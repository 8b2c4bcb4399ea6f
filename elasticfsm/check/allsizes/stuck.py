"""Deadlocks of any size: places that go with each other, none of which can move, each held by another one.

A system is stuck if no engine and not the coordinator can move without help from outside, and somebody may not rest.
Whether an engine can move depends on its place and on which others are occupied, not on how many stand there. So the
search is for a set of places, every two of them in a view, in which whatever could move is held: a wait for all by one
of whom it is not true, a collective by a member that is not in it. An engine of every role takes part. That such a set
is found does not mean that a system can come to it, since only its views are known; that none is found proves that no
system is ever stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from elasticfsm.check.allsizes.moving import Moving
from elasticfsm.check.allsizes.places import Place
from elasticfsm.check.move import ENVIRONMENT, Move
from elasticfsm.check.world import RUNNING

Test = Callable[[Place], bool]


@dataclass(frozen=True, slots=True)
class Demands:
    """What must be so that one does not move: `some` engine is like this (each of them), `none` is like that."""

    some: tuple[Test, ...] = ()
    none: tuple[Test, ...] = ()


def stuck(moving: Moving) -> tuple[int, tuple[Place, ...]] | None:
    """The coordinator's state and places in which nobody can move; None if no size can come to such."""
    for boss in list(moving.views.beside):
        found = _Search(moving, boss).run()
        if found is not None:
            return boss, found
    return None


class _Search:
    """The search in one state of the coordinator."""

    def __init__(self, moving: Moving, boss: int) -> None:
        self.moving = moving
        self.places = moving.places
        self.world = moving.world
        self.boss = boss
        self.beside = moving.views.beside[boss]
        self.seen: set[frozenset[int]] = set()
        self.first = Demands()
        self.held: dict[int, Demands] = {}

    def run(self) -> tuple[Place, ...] | None:
        """A set of places that hold each other beside this state of the coordinator, or None."""
        first = self._coordinator()
        if first is None:
            return None
        self.first = first
        for number in self.beside:
            demands = self._engine(self.places[number])
            if demands is not None and not any(test(self.places[number]) for test in first.none):
                self.held[number] = demands
        running = self.world.operation and self.world.end_of_boss(self.boss) == RUNNING
        for number in self.held:
            if running or not self._rests(self.places[number]):
                found = self._grow((number,))
                if found is not None:
                    return found
        return None

    def _grow(self, chosen: tuple[int, ...]) -> tuple[Place, ...] | None:
        """Adds places until all demands are met; None if that cannot be."""
        key = frozenset(chosen)
        if key in self.seen:
            return None
        self.seen.add(key)
        places = tuple(self.places[number] for number in chosen)
        missing = next(self._unmet(places), None)
        if missing is None:
            return places
        for number in self.held:
            if number not in key and missing(self.places[number]) and self._fits(chosen, number):
                found = self._grow((*chosen, number))
                if found is not None:
                    return found
        return None

    def _fits(self, chosen: tuple[int, ...], number: int) -> bool:
        if not all(other in self.beside[number] for other in chosen):
            return False
        place = self.places[number]
        mine = self.held[number]
        return not any(test(self.places[other]) for test in mine.none for other in chosen) and not any(
            test(place) for other in chosen for test in self.held[other].none
        )

    def _unmet(self, places: tuple[Place, ...]) -> Iterator[Test]:
        for demands in (self.first, *(self.held[place.number] for place in places)):
            for test in demands.some:
                if not any(map(test, places)):
                    yield test
        for role in self.world.tables.roles:
            if not any(place.role == role for place in places):
                yield lambda place, role=role: place.role == role  # type: ignore[misc]

    def _rests(self, place: Place) -> bool:
        return place.known.rests and (not self.world.operation or place.known.end != RUNNING)

    def _coordinator(self) -> Demands | None:
        """What holds the coordinator; None if nothing does."""
        some: list[Test] = []
        none: list[Test] = []
        for _, move in self.moving.orders(self.boss) if self.world.operation else ():
            if move.tag & ENVIRONMENT:
                continue
            if not move.look:
                return None
            alive = move.look == "all alive"
            sources = move.sources

            def sent(place: Place, sources: tuple[tuple[str, int], ...] = sources) -> bool:
                return any(role == place.role and place.known.outbox & bit for role, bit in sources)

            def silent(place: Place, sources: tuple[tuple[str, int], ...] = sources, alive: bool = alive) -> bool:
                counts = place.local.present or not alive
                return counts and any(role == place.role and not place.known.outbox & bit for role, bit in sources)

            if move.look in ("any", "received"):
                none.append(sent)
            else:
                some.append(silent)
        return Demands(tuple(some), tuple(none))

    def _engine(self, place: Place) -> Demands | None:
        """What holds an engine; None if nothing does."""
        if place.prompt is not None:
            return None
        some: list[Test] = []
        none: list[Test] = []
        if any(not move.tag & ENVIRONMENT for _, move in place.known.plain):
            return None
        for _, move in place.known.open:
            if move.tag & ENVIRONMENT or (move.takes >= 0 and not place.mail >> move.takes & 1):
                continue
            if move.takes >= 0 or move.enters or (move.peers and not move.needs):
                return None
            demand = self._held_by(move)
            if demand is None:
                return None
            some += demand.some
            none += demand.none
        for group, step in place.groups:
            some.append(partial(self.places.outside, group=group, step=step))
        if any(test(place) for test in none):
            return None
        return Demands(tuple(some), tuple(none))

    def _held_by(self, move: Move) -> Demands | None:
        """What holds a move that asks about other engines."""
        if move.cut >= 0:
            members = self.places.members[move.cut]
            return Demands(none=(lambda one: one.role in members and bool(one.known.closed >> move.cut & 1),))
        has = self.moving.has
        if move.needs:
            return Demands(some=(lambda one: not has(one, move.needs),))
        if move.lacks:
            return Demands(none=(lambda one: not has(one, move.lacks),))
        return None
