"""Breadth-first search over all reachable states, with parent pointers: the first trace found is a shortest one."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from elasticfsm.check.moves import ENVIRONMENT
from elasticfsm.check.reduce import Alone, symmetry
from elasticfsm.check.successors import Successors, Transition
from elasticfsm.check.world import ABORTED, DONE, State, World

MILLIONS = 1 << 14


@dataclass
class Graph:
    """Everything that was reached. Edges of state i are targets[offsets[i]:offsets[i + 1]], with the same slice of tags.

    `refuted` maps a property to (state, transition or None): the first state, or the transition out of it, that refutes it.
    """

    world: World
    successors: Successors
    canonical: Callable[[State], State]
    reduced: bool
    states: list[State] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("l"))
    offsets: array[int] = field(default_factory=lambda: array("l", [0]))
    targets: array[int] = field(default_factory=lambda: array("l"))
    tags: bytearray = field(default_factory=bytearray)
    ends: dict[int, int] = field(default_factory=dict)
    refuted: dict[str, tuple[int, Transition | None]] = field(default_factory=dict)
    fired: set[tuple[str, str, str]] = field(default_factory=set)
    complete: bool = True

    @property
    def transitions(self) -> int:
        """How many transitions were explored."""
        return len(self.targets)


class Interrupted(Exception):  # noqa: N818 - not an error: the reduction was too bold, the run is repeated without it
    """A list was cancelled or a group closed although the regime was expected to have neither."""


def explore(
    world: World,
    reduced: bool = True,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    bold: bool = True,
) -> Graph:
    """Explores a world to the end or up to `limit` states; `reduced` uses symmetry and moves explored alone."""
    safe = Alone(world) if reduced else None
    successors = Successors(world, safe)
    graph = Graph(world, successors, symmetry(world) if reduced else lambda state: state, reduced)
    with _no_collector():
        try:
            _search(graph, limit, progress, guard=reduced and bold and not world.regime.cancel)
        except Interrupted:
            strict = World(world.program, world.sizes, world.regime._replace(cancel=True))
            strict.never_cancels = True
            return explore(strict, reduced, limit, progress)
    return graph


def _search(graph: Graph, limit: int | None, progress: Callable[[int], None] | None, guard: bool) -> None:
    successors, canonical = graph.successors, graph.canonical
    first = canonical(graph.world.initial())
    states, parents, targets, tags = graph.states, graph.parents, graph.targets, graph.tags
    index = {first: 0}
    states.append(first)
    parents.append(-1)
    place = 0
    while place < len(states):
        state = states[place]
        alone = successors.alone(state) if graph.reduced else None
        found = [alone] if alone else successors.all(state)
        _look(graph, place, state, found, guard)
        for transition in found:
            target = canonical(transition[0])
            number = index.get(target)
            if number is None:
                number = index[target] = len(states)
                states.append(target)
                parents.append(place)
            targets.append(number)
            tags.append(transition[3])
            if transition[4]:
                for name in transition[4]:
                    graph.refuted.setdefault(name, (place, transition))
        graph.offsets.append(len(targets))
        place += 1
        if not place % MILLIONS and progress:
            progress(len(states))
        if limit is not None and len(states) > limit:
            graph.complete = False
            return


def _look(graph: Graph, place: int, state: State, found: list[Transition], guard: bool) -> None:
    """Judges a state by itself: invariants, agreement, ends, deadlock."""
    known = graph.successors.known
    look_up = graph.successors.look_up
    ends = graph.world.end_of_boss(state[0])
    for number in state[1:-1]:
        one = (known[number] if number < len(known) else None) or look_up(number)
        ends |= one.end
        if one.bad:
            for name in one.bad:
                graph.refuted.setdefault(name, (place, None))
        if guard and one.closed & 2:
            raise Interrupted
    if ends & DONE and ends & ABORTED:
        graph.refuted.setdefault("agreement", (place, None))
    if not ends & 16:
        graph.ends[place] = ends
    if not any(not transition.tag & ENVIRONMENT for transition in found) and not _rests(graph, state):
        graph.refuted.setdefault("no_deadlock", (place, None))


def _rests(graph: Graph, state: State) -> bool:
    if graph.world.operation and graph.world.end_of_boss(state[0]) == 16:
        return False
    return all(_engine_rests(graph, number) for number in state[1:-1])


def _engine_rests(graph: Graph, number: int) -> bool:
    known = graph.successors.look_up(number)
    return known.rests and (not graph.world.operation or known.end != 16)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of small tuples without cycles: the collector would only slow the search down."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
