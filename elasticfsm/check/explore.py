"""Breadth-first search over all reachable states, with parent pointers: the first trace found is a shortest one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from elasticfsm.check import paths
from elasticfsm.check.forget import Forget
from elasticfsm.check.move import ENVIRONMENT
from elasticfsm.check.reduce import Alone, symmetry
from elasticfsm.check.search import Reached, search
from elasticfsm.check.service import Judged, Service
from elasticfsm.check.successors import Successors
from elasticfsm.check.transition import Interrupted, Transition
from elasticfsm.check.world import ABORTED, CALM, DONE, State, World


@dataclass
class Graph:
    """Everything that was reached. Edges of state i: targets[offsets[i]:offsets[i + 1]], with the same slice of tags.

    `refuted` maps a property to (state, transition or None): the first state, or transition out of it, that refutes it.
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
    good: list[int] = field(default_factory=list)
    service: Service | None = None
    refuted: dict[str, tuple[int, Transition | None]] = field(default_factory=dict)
    fired: set[int] = field(default_factory=set)
    complete: bool = True

    @property
    def transitions(self) -> int:
        """How many transitions were explored."""
        return len(self.targets)

    def locals(self) -> set[int]:
        """The numbers of all local states that stand in some state."""
        return {number for state in self.states for number in state[1:-1]}

    def standing(self, numbers: set[int]) -> list[int]:
        """The states in which some engine has one of these local states, in order."""
        return [place for place, state in enumerate(self.states) if not numbers.isdisjoint(state[1:-1])]

    @cached_property
    def backward(self) -> paths.Backward:
        """The transitions sorted by target."""
        return paths.reverse(self)

    def backwards(self, goals: Iterable[int], closed: int) -> bytearray:
        """For each state 1 if a goal can be reached from it without a transition that has one of these tags."""
        return paths.backwards(self, goals, closed)

    def forwards(self, closed: int) -> bytearray:
        """For each state 1 if it can be reached from the first one without a transition that has one of these tags."""
        return paths.forwards(self, closed)

    def leaving(self, tags: int) -> list[int]:
        """The states out of which a transition with one of these tags leads, in order."""
        return paths.leaving(self, tags)


def explore(
    world: World,
    reduced: bool = True,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    bold: bool = True,
    alone: bool = True,
    enough: int | None = None,
) -> Graph:
    """Explores a world to the end or up to `limit` states; `reduced` uses symmetry and moves explored alone.

    With `enough` it ends after so many states if something is refuted by then.
    """
    world.forget = Forget(world) if reduced else None
    world.bold = reduced and bold and not world.regime.faults
    successors = Successors(world, Alone(world) if reduced and alone else None)
    graph = Graph(world, successors, settled_form(world, successors) if reduced else lambda state: state, reduced)
    world.form = graph.canonical
    graph.service = Service(world, successors.known) if world.regime.faults and world.operation else None
    try:
        _search(graph, limit, progress, enough)
    except Interrupted:
        fresh = World(world.program, world.sizes, world.regime)
        return explore(fresh, reduced, limit, progress, bold=False, alone=alone, enough=enough)
    return graph


def settled_form(world: World, successors: Successors) -> Callable[[State], State]:
    """Maps a state to the one that stands for all that are alike under the reductions."""
    sort, settled, last = symmetry(world), successors.settled, world.count + 1

    def canonical(state: State) -> State:
        state = (state[0], *[settled[number] for number in state[1:last]], state[last])
        return sort(successors.heard_mail(state)) if state[-1] else sort(state)

    return canonical


def _search(graph: Graph, limit: int | None, progress: Callable[[int], None] | None, enough: int | None) -> None:
    successors, canonical, refuted = graph.successors, graph.canonical, graph.refuted
    alarmed = graph.world.bold and graph.world.regime == CALM
    tags, fired = graph.tags, graph.fired

    def moves(state: State) -> list[Transition]:
        alone = successors.alone(state) if graph.reduced else None
        return [alone] if alone else successors.all(state)

    def judge(place: int, state: State, found: Sequence[Transition]) -> None:
        look(graph, place, state, found, alarmed)
        for transition in found:
            fired.add(id(transition.move))
            tags.append(transition.tag)
            for name in transition.bad:
                refuted.setdefault(name, (place, transition))

    into = Reached(graph.states, graph.parents, graph.offsets, graph.targets)
    first = canonical(graph.world.initial())
    ended = None if enough is None else lambda: bool(refuted) and len(graph.states) > enough
    search([first], moves, lambda transition: canonical(transition.target), judge, limit, progress, into, ended)
    graph.complete = into.complete


def look(graph: Graph, place: int, state: State, found: Sequence[Transition], alarmed: bool) -> None:
    """Judges a state by itself: invariants, agreement, ends, deadlock."""
    ends = _judged(graph, place, state) if graph.service is not None else _looked(graph, place, state, alarmed)
    if not ends & 16:
        graph.ends[place] = ends
    if graph.world.regime.crashes or graph.world.regime.losses or graph.world.regime.expiry != "off":
        return  # then waiting for ever is judged by `good_end` and `service_kept`
    if not any(not transition.tag & ENVIRONMENT for transition in found) and not _rests(graph, state):
        graph.refuted.setdefault("no_deadlock", (place, None))


def _judged(graph: Graph, place: int, state: State) -> int:
    """Notes what is said of a state in which something may have gone wrong; returns how everybody stands."""
    said = graph.service.judge(state) if graph.service is not None else Judged((), 0, False)
    for name in said.refuted:
        graph.refuted.setdefault(name, (place, None))
    if said.good:
        graph.good.append(place)
    return said.ends


def _looked(graph: Graph, place: int, state: State, alarmed: bool) -> int:
    """The same where nothing goes wrong; raises `Interrupted` where a reduction was too bold."""
    ends = graph.world.end_of_boss(state[0])
    if alarmed and graph.world.boss_interrupts(state[0]):
        raise Interrupted
    for one in [graph.successors.known[number] for number in state[1:-1]]:
        ends |= one.end
        for name in one.bad:
            graph.refuted.setdefault(name, (place, None))
        if alarmed and one.alarm:
            raise Interrupted
    if ends & DONE and ends & ABORTED:
        graph.refuted.setdefault("agreement", (place, None))
    return ends


def _rests(graph: Graph, state: State) -> bool:
    if graph.world.operation and graph.world.end_of_boss(state[0]) == 16:
        return False
    return all(_engine_rests(graph, number) for number in state[1:-1])


def _engine_rests(graph: Graph, number: int) -> bool:
    known = graph.successors.known[number]
    return known.rests and (not graph.world.operation or known.end != 16)
