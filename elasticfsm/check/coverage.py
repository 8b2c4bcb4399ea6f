"""Which ways out of states were taken: what no run takes proves nothing about what lies behind it."""

from __future__ import annotations

from elasticfsm.check.alike import alike
from elasticfsm.check.explore import Graph
from elasticfsm.check.move import Edge
from elasticfsm.check.world import World
from elasticfsm.compile import Program
from elasticfsm.protocol import Guard, Machine

FAULT_ONLY = ("failed", "expired")


def fired(graph: Graph) -> set[Edge]:
    """The ways out that some run of this graph takes."""
    found: set[Edge] = set()
    taken = [move for move in graph.successors.moves() if id(move) in graph.fired]
    for move in (*taken, *graph.successors.settled.passed):
        found.update(move.edges)
    for number in graph.locals():
        for _, plain in graph.successors.known[number].plain:
            found.update(plain.edges)
    return found | (_alike(graph.world, found) if graph.reduced else set())


def _alike(world: World, found: set[Edge]) -> set[Edge]:
    """The same ways out of states that behave alike: the run names only one of them."""
    more: set[Edge] = set()
    for machines in world.machines:
        for machine in machines:
            for state, like in zip(machine.states, alike(machine), strict=True):
                other = machine.states[like].name
                more.update(
                    (name, state.name, guard) for name, where, guard in found if (name, where) == (machine.name, other)
                )
    return more


def all_edges(program: Program) -> set[Edge]:
    """Every way out of every state, and every way in which a machine starts."""
    found: set[Edge] = set()
    inside = {name for names in program.roles.values() for name in names}
    for name, machine in program.machines.items():
        for state in machine.states.values():
            found.update((name, state.name, str(way.guard)) for way in state.leave)
        if name in inside:
            found.update((name, "", f"starts {message}") for message in machine.starts)
    return found


def possible(program: Program, faults: bool, before: tuple[str, str] = ("", "")) -> set[Edge]:
    """The ways out that the diagrams alone allow: each guard possible, each message that a reachable state sends.

    Without `faults`: no step fails, no deadline expires, nobody dies, and nothing comes from outside the protocol.
    `before` (machine, state): that machine has not gone on from there yet, so others cannot have heard of more.
    """
    reached = {name: set(_begin(program, name)) for name in program.machines}
    found: set[Edge] = set()
    earlier = _earlier(program.machines[before[0]], before[1]) if before[0] else set()
    while True:
        sent = {
            (message, name)
            for name, states in reached.items()
            for state in states
            for message in program.machines[name].states[state].sends
        }
        size = len(found), sum(map(len, reached.values()))
        for name, machine in program.machines.items():
            _grow(program, name, machine, reached[name], sent, faults, found)
            if name == before[0]:
                reached[name] &= earlier
        if size == (len(found), sum(map(len, reached.values()))):
            return found


def _earlier(machine: Machine, state: str) -> set[str]:
    """The states from which a machine can come to this one."""
    found = {state}
    while True:
        more = {name for name, other in machine.states.items() if any(way.target in found for way in other.leave)}
        if more <= found:
            return found
        found |= more


def _begin(program: Program, name: str) -> list[str]:
    machine = program.machines[name]
    if name == program.coordinator:
        return [next(iter(machine.starts.values()))]
    return [machine.first] if any(name in started for started in program.started.values()) else []


def _grow(
    program: Program,
    name: str,
    machine: Machine,
    states: set[str],
    sent: set[tuple[str, str]],
    faults: bool,
    found: set[Edge],
) -> None:
    for message, target in machine.starts.items():
        if _sendable(program, name, message, sent, faults) and name != program.coordinator:
            found.add((name, "", f"starts {message}"))
            states.add(target)
    for state in list(states):
        for way in machine.states[state].leave:
            if _guard_possible(program, name, machine, state, way.guard, sent, faults):
                found.add((name, state, str(way.guard)))
                states.add(way.target)


def _guard_possible(
    program: Program, name: str, machine: Machine, state: str, guard: Guard, sent: set[tuple[str, str]], faults: bool
) -> bool:
    if faults and guard.kind in FAULT_ONLY:
        return True
    if guard.kind in FAULT_ONLY:
        return False
    if guard.kind == "wanted":
        return faults or any(other.asked() for one in program.machines.values() for other in one.states.values())
    if guard.kind in ("received", "any", "all", "all alive"):
        return _sendable(program, name, guard.name, sent, faults)
    if guard.kind == "answer" and not faults:
        asking = [step.meaning for step in machine.states[state].steps if guard.name in step.meaning.answers]
        return not any(meaning.asks and guard.name == meaning.answers[-1] for meaning in asking)
    return True


def _sendable(program: Program, receiver: str, message: str, sent: set[tuple[str, str]], faults: bool) -> bool:
    senders = program.senders(receiver, message)
    if any(sender in ("operator", "environment") for sender in senders):
        return True
    if "outside" in senders and (faults or not program.coordinator):
        return faults
    if faults and message in ("died", "lost"):
        return True
    return any((message, sender) in sent for sender in senders)


def gaps(program: Program, taken: set[Edge], thorough: bool) -> tuple[list[Edge], list[Edge], list[Edge]]:
    """What no run took: vacuous ways (an error), those only for faults or from outside, and those of shared machines.

    A way of another protocol's machine, and an exit that a phase gives to all its states, may be needed elsewhere; so
    may every way that these runs, if they were not `thorough`, did not come to.
    """
    left = all_edges(program) - taken
    never = left - possible(program, faults=True)
    calm = {edge for edge in (left - never) & possible(program, faults=False) if _in_time(program, edge)}
    shared = {edge for edge in calm if not thorough or _shared(program, edge)}
    return sorted(never | (calm - shared)), sorted(left - never - calm), sorted(shared)


def _in_time(program: Program, edge: Edge) -> bool:
    """Whether a message can come, without faults, while its receiver still stands where it is wanted."""
    name, state, guard = edge
    if state and guard.startswith("received") and _stays(program, edge):
        return False  # a question asked again, after a deadline: the state says its answer once more
    if not state or name not in program.coordinator:
        return True
    return edge in possible(program, faults=False, before=(name, state))


def _stays(program: Program, edge: Edge) -> bool:
    """Whether a way leads back to the state that it leaves."""
    name, state, guard = edge
    return any(way.target == state and str(way.guard) == guard for way in program.machines[name].states[state].leave)


def _shared(program: Program, edge: Edge) -> bool:
    name, state, guard = edge
    own = name.startswith(f"{program.name}.")
    ways = program.machines[name].states[state].leave if state else ()
    return not own or any(way.shared and str(way.guard) == guard for way in ways)
