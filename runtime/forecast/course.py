"""The course of an operation that nothing goes wrong with, read off the compiled protocol."""

from __future__ import annotations

import msgspec

from elasticfsm.compile import Program
from elasticfsm.protocol import Machine, State

_COLLECTIVE = frozenset({"rendezvous", "agree"})


class Station(msgspec.Struct, kw_only=True):
    """One state on the way: what it does, in which thread, what it says, and what it waits for to go on."""

    state: str
    phase: str
    thread: str
    steps: list[str]
    sends: list[str]
    then: str
    collectives: int


class Role(msgspec.Struct, kw_only=True):
    """The way of one role of the operation; `engines` is how many have it."""

    role: str
    engines: int
    stations: list[Station]


def courses(program: Program, engines: dict[str, int]) -> list[Role]:
    """Return the way of every role that some engine (or the coordinator) has, in the order of the protocol file."""
    found = []
    for name, machine in program.machines.items():
        protocol, _, role = name.partition(".")
        if protocol == program.name and engines.get(role):
            found.append(Role(role=role, engines=engines[role], stations=_way(machine)))
    return found


def pause_collectives(role: Role) -> int:
    """Return how many collectives lie between two forward steps at most; foreground states in a row are one pause."""
    longest = running = 0
    for station in role.stations:
        running = running + station.collectives if station.thread == "foreground" else 0
        longest = max(longest, running)
    return longest


def _way(machine: Machine) -> list[Station]:
    """Follow the first exit that a state has of its own: exits of the phase are for what goes wrong."""
    stations, name, seen = [], next(iter(machine.starts.values())), set()
    while name not in seen:
        seen.add(name)
        state = machine.states[name]
        ways = [way for way in state.leave if not way.shared and way.guard.kind != "failed"]
        chosen = next((way for way in ways if _goes_on(machine, way.target)), ways[0] if ways else None)
        stations.append(_station(state, str(chosen.guard) if chosen is not None else ""))
        if chosen is None:
            break
        name = chosen.target
    return stations


def _goes_on(machine: Machine, target: str) -> bool:
    """Whether a state lies on the way of success: in no phase that undoes, and not an end of failure."""
    state = machine.states[target]
    return target not in ("aborted", "failed") and state.phase != "aborting"


def _station(state: State, then: str) -> Station:
    return Station(
        state=state.name,
        phase=state.phase,
        thread=state.thread,
        steps=[str(step) for step in state.steps],
        sends=list(state.sends),
        then=then,
        collectives=sum(step.meaning.means in _COLLECTIVE for step in state.steps),
    )
