"""How an operation may end after one fault, fault by fault: what the suite of real faults is held against.

Every transition that is a fault is looked at in the graph that was explored: whose machine stood where, or which
message it was. What can be reached behind it, without another fault, are the endings that the protocol allows for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.engine import explored
from elasticfsm.check.explore import Graph
from elasticfsm.check.move import FAULT
from elasticfsm.check.transition import BOSS, Transition
from elasticfsm.check.world import ABORTED, DONE, FAILURE, OTHER_END, Regime, State, World, sizes_of
from elasticfsm.compile import Program

WORDS = {DONE: "completed", ABORTED: "aborted", OTHER_END: "failed"}
LOST, AGAIN = ", a message is lost", ", and the message comes again"


Stood = tuple[str, str, str]  # role, machine, state or message


class Where(NamedTuple):
    """A fault: death, failure, loss, duplicate or slow.

    `machine` of an engine of this role (or of the coordinator, whose role is empty) stands in the state `what`, or
    sends the message `what`.
    """

    kind: str
    role: str
    machine: str
    what: str


def endings(program: Program, sizes: str, regime: Regime) -> dict[Where, frozenset[str]]:
    """Explores one size under a regime with one fault and tells for each fault how the operation may end."""
    graph = explored(World(program, sizes_of(program, sizes), regime), engine="plain")
    reached = {word: graph.backwards(_ended(graph, bit), FAULT) for bit, word in WORDS.items()}
    found: dict[Where, set[str]] = defaultdict(set)
    for place, state in enumerate(graph.states):
        for where, target in _faults(graph, place, state):
            found[where] |= {word for word, can in reached.items() if can[target]}
    return {where: frozenset(words) for where, words in found.items()}


def _ended(graph: Graph, bit: int) -> list[int]:
    world = graph.world
    return [place for place, state in enumerate(graph.states) if world.end_of_boss(state[0]) == bit]


def _faults(graph: Graph, place: int, state: State) -> Iterator[tuple[Where, int]]:
    """The faults that may happen in a state, and the state that each leads to."""
    world = graph.world
    if any(world.bosses[state[0]].spent):
        return
    for stand in _stands(world, state):
        yield Where("slow", *stand), place
    if not any(world.regime.budgets):
        return
    paid: Transition | None = None
    for edge, transition in enumerate(graph.successors.all(state), graph.offsets[place]):
        target = graph.targets[edge]
        if transition.said.endswith((LOST, AGAIN)):
            kind = "loss" if transition.said.endswith(LOST) else "duplicate"
            sent = _difference(world, paid, transition) if kind == "loss" else _taken(world, state, paid)
            for each in sent:
                yield Where(kind, *each), target
            continue
        paid = transition
        if transition.move.cost == FAILURE:
            yield Where("failure", *_mover(world, state, transition)), target
        elif any(world.bosses[transition.target[0]].spent):
            for stand in _buried(world, state, transition):
                yield Where("death", *stand), target


def _stands(world: World, state: State) -> Iterator[Stood]:
    for who in range(world.count):
        yield from _of_engine(world, state, who)
    yield from _of_boss(world, state)


def _of_engine(world: World, state: State, who: int) -> Iterator[Stood]:
    local = world.locals[state[who + 1]]
    for index, table in enumerate(world.machines[local.role]):
        at = world.state_of(local, index)
        if at is not None:
            yield world.roles[who], table.name, at.name


def _of_boss(world: World, state: State) -> Iterator[Stood]:
    stand, table = world.bosses[state[0]].stand, world.tables.coordinator
    if stand is not None and table is not None:
        yield "", table.name, table.states[stand.state].name


def _mover(world: World, state: State, transition: Transition) -> Stood:
    if isinstance(transition.move, BossMove):
        return next(_of_boss(world, state))
    local = world.locals[state[transition.who + 1]]
    at = world.state_of(local, transition.move.machine)
    table = world.machines[local.role][transition.move.machine]
    return world.roles[transition.who], table.name, at.name if at is not None else ""


def _buried(world: World, state: State, transition: Transition) -> Iterator[Stood]:
    """Where the machines stood of whoever died in this transition."""
    if transition.who == BOSS:
        yield from _of_boss(world, state)
        return
    yield from _of_engine(world, state, transition.who)


def _difference(world: World, paid: Transition | None, other: Transition) -> Iterator[Stood]:
    """What one of two transitions has in flight and the other has not, by who sent it."""
    if paid is None:
        return
    for place in range(1, world.count + 1):
        one, two = world.locals[paid.target[place]], world.locals[other.target[place]]
        inbox, outbox = int(one.inbox ^ two.inbox), int(one.outbox ^ two.outbox)
        role = world.roles[place - 1]
        for (name, sender, _), bit in world.tables.mail.inbox.items():
            if inbox & bit:
                yield "" if sender == world.program.coordinator else role, sender, name
        for (name, sender), bit in world.tables.mail.outbox.items():
            if outbox & bit:
                yield role, sender, name


def _taken(world: World, state: State, paid: Transition | None) -> Iterator[Stood]:
    """What the coordinator had sent and somebody takes in a transition; a second copy may be forgotten at once."""
    if paid is None:
        return
    for place in range(1, world.count + 1):
        gone = int(world.locals[state[place]].inbox) & ~int(world.locals[paid.target[place]].inbox)
        for (name, sender, _), bit in world.tables.mail.inbox.items():
            if sender == world.program.coordinator and gone & bit:
                yield "", sender, name
