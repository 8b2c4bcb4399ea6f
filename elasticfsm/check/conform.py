"""The other way round: paths of the checker run on the real objects, and must lead to the same states.

Every edge of the explored graph, up to a bound on its distance from the start, is covered at least once by walks; what
symmetry and moves explored alone pass over is walked as well, move by move. Walks at random through all interleavings
come on top. After every micro-step machines, facts, collectives and mail of both are compared.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from elasticfsm.check.explore import Graph, explore
from elasticfsm.check.move import ENVIRONMENT, EXPIRED, FAULT
from elasticfsm.check.replay import Plain, acts
from elasticfsm.check.trace import heard, settle, step_to
from elasticfsm.check.transition import Transition
from elasticfsm.check.world import CALM, Regime, World
from elasticfsm.compile import Program
from elasticfsm.errors import ElasticError
from elasticfsm.testing.stage import Act, Stage
from elasticfsm.testing.stage.view import differences, view

RARELY = 0.04  # how often a random walk lets the environment choose
LAST = 12  # micro-steps that are shown before the one that went wrong


class Differs(ElasticError):
    """A path of the checker cannot be walked on the real objects, or leads to another state there."""

    exit_code = 1


class Edge(NamedTuple):
    """One way from a state of the graph to another: the target, and which move it is."""

    target: int
    move: int
    said: str


@dataclass
class Conformity:
    """What was walked: edges out of `states`, those `within` a distance of the start, or all of them."""

    protocol: str
    sizes: str
    regime: str
    states: int = 0
    edges: int = 0
    within: int | None = None
    walks: int = 0
    steps: int = 0
    random_walks: int = 0
    random_steps: int = 0
    overruled: int = 0
    seconds: float = 0.0


@dataclass
class Walker:
    """A stage and the checker's state, moved together."""

    program: Program
    sizes: dict[str, int]
    plain: Plain
    stage: Stage = field(init=False)
    acts: list[Act] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plain.begin()
        self.stage = Stage(self.program, self.sizes, repeats=bool(self.plain.world.regime.losses))

    def do(self, told: list[Act]) -> None:
        """Does on the stage what the checker has done; raises `Differs`."""
        for one in told:
            self.acts.append(one)
            try:
                self.stage.act(one)
            except ElasticError as error:
                raise Differs(self._told([str(error)])) from error
        lines = differences(self.plain.view(), view(self.stage))
        refused = [str(one) for engine in self.stage.engines.values() for one in engine.monitor.violations]
        if refused:
            raise Differs(self._told(["the monitor refuses what the checker allows:", *refused]))
        if lines:
            raise Differs(self._told(["the checker's state | the real objects':", *lines]))

    def allowed(self, ways: list[Transition]) -> None:
        """What the real objects would do next by themselves must be among the checker's moves; raises `Differs`."""
        known = {_bare(one) for way in ways for one in acts(self.plain.world, way, self.plain.state)}
        extra = [one for one in self.stage.actions() if _bare(one) not in known]
        if extra:
            raise Differs(self._told(["which the checker does not have here:", *(f"  {one}" for one in extra)]))

    def close(self) -> int:
        """Ends the stage; returns how often the interpreter would have preferred another enabled guard."""
        self.stage.close()
        return sum(held.overruled for actor in self.stage.actors() for held in actor.held.values())

    def _told(self, lines: list[str]) -> str:
        before = [f"  {one}" for one in self.acts[-LAST:]]
        head = f"{self.program.name}: after {len(self.acts)} micro-steps, the last of them"
        return "\n".join([head, *before, *lines])


def conform(
    program: Program,
    sizes: dict[str, int],
    regime: Regime = CALM,
    steps: int | None = None,
    walks: int = 0,
    length: int = 400,
    limit: int = 200_000,
) -> Conformity:
    """Covers every edge within `steps` of the start, then takes random walks; raises `Differs` where they part.

    If there are more than `limit` states, the bound is the distance up to which all were expanded (`within`).
    Needs the runtime's interpreter, but neither torch nor sockets. Blocks; about 1,500 micro-steps a second.
    """
    began = time.perf_counter()
    found = Conformity(program.name, "+".join(map(str, sizes.values())), str(regime))
    plain = Plain(World(program, sizes, regime))
    if steps != 0:
        graph = explore(World(program, sizes, regime), limit=limit)
        _cover(graph, Walker(program, sizes, plain), found, steps)
    for seed in range(walks):
        _wander(Walker(program, sizes, plain), random.Random(seed), length, found)
    found.seconds = time.perf_counter() - began
    return found


def _bare(one: Act) -> Act:
    """Without the answer or the sender: what is free in the checker, the real objects choose."""
    return one._replace(more="")


def _wander(walker: Walker, chance: random.Random, length: int, found: Conformity) -> None:
    """A walk at random through all interleavings; what the real objects want to do next is compared as well."""
    try:
        for _ in range(length):
            ways = walker.plain.successors.all(walker.plain.state)
            if not ways:
                break
            walker.allowed(ways)
            usual = [way for way in ways if not way.tag & (ENVIRONMENT | FAULT | EXPIRED)]
            rare = not usual or chance.random() < RARELY  # what the environment does
            walker.do(walker.plain.take(chance.choice(ways if rare else usual)))
    finally:
        found.overruled += walker.close()
    found.random_walks += 1
    found.random_steps += len(walker.acts)


def _cover(graph: Graph, walker: Walker, found: Conformity, steps: int | None) -> None:
    """Walks until every edge was taken."""
    depth, expanded = _depths(graph), len(graph.offsets) - 1
    if not graph.complete:
        steps = min(depth[expanded], steps if steps is not None else depth[expanded])
    inside = [place for place in range(expanded) if steps is None or depth[place] < steps]
    edges = {place: _edges(graph, place) for place in inside}
    left = {place: set(ways) for place, ways in edges.items()}
    found.states, found.within, found.edges = len(inside), steps, sum(map(len, left.values()))
    place, path = 0, Path(graph, walker)
    while any(left.values()):
        way = _next(place, edges, left)
        if way is None and place == 0 and not path.steps:
            raise ElasticError(f"{graph.world.program.name}: an edge that nothing leads to")
        if way is None:
            path.end(found)
            place, path = 0, Path(graph, Walker(walker.program, walker.sizes, walker.plain))
            continue
        try:
            path.go(place, way)
        except ElasticError:
            path.end(found)
            raise
        left[place].discard(way)
        place = way.target
    path.end(found)


class Path:
    """One walk along edges of the graph, engines kept apart although symmetry merged them."""

    def __init__(self, graph: Graph, walker: Walker) -> None:
        self.steps = 0
        self._graph = graph
        self._walker = walker
        self._state = graph.world.initial()
        self._settle()

    def go(self, place: int, way: Edge) -> None:
        """Takes an edge, and then what the reduction passes over."""
        self._follow(step_to(self._graph, self._state, self._graph.states[way.target], way.move, way.said))
        self._state = heard(self._graph, self._state)
        self._settle()

    def end(self, found: Conformity) -> None:
        """The walk is over."""
        found.overruled += self._walker.close()
        found.walks += 1
        found.steps += self.steps

    def _settle(self) -> None:
        for step in settle(self._graph, self._state):
            self._follow(step)

    def _follow(self, step: Transition) -> None:
        told = self._walker.plain.follow(self._graph.world, step, self._state)
        self._state = step.target
        self.steps += 1
        self._walker.do(told)


def _edges(graph: Graph, place: int) -> list[Edge]:
    state = graph.states[place]
    alone = graph.successors.alone(state) if graph.reduced else None
    steps = [alone] if alone else graph.successors.all(state)
    numbers = [graph.targets[edge] for edge in range(graph.offsets[place], graph.offsets[place + 1])]
    return [Edge(number, id(step.move), step.said) for number, step in zip(numbers, steps, strict=True)]


def _depths(graph: Graph) -> list[int]:
    depths = [0] * len(graph.states)
    for place in range(1, len(graph.states)):
        depths[place] = depths[graph.parents[place]] + 1
    return depths


def _next(place: int, edges: dict[int, list[Edge]], left: dict[int, set[Edge]]) -> Edge | None:
    """The first edge on the shortest way to one that was not taken yet."""
    if left.get(place):
        return min(left[place], key=edges[place].index)
    first: dict[int, Edge | None] = {place: None}
    queue = deque([place])
    while queue:
        here = queue.popleft()
        for way in edges.get(here, ()):
            if way.target in first:
                continue
            first[way.target] = first[here] or way
            if left.get(way.target):
                return first[way.target]
            queue.append(way.target)
    return None
