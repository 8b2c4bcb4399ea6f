"""Composes a protocol with those it stands on into one program: qualified machines, routes of messages, all votes."""

from __future__ import annotations

from functools import cache

import msgspec

from elasticfsm.errors import SpecError
from elasticfsm.language import StepMeaning
from elasticfsm.protocol import Machine, Protocol, load
from elasticfsm.steps import vocabulary_at

OUTSIDE = frozenset({"operator", "environment", "outside", "earlier"})  # earlier: an operation before this one
COORDINATOR = "coordinator"


class Route(msgspec.Struct, frozen=True):
    """One message between two machines. `local`: inside one engine, never lost. `peers`: to every other engine."""

    message: str
    sender: str
    receiver: str
    local: bool
    peers: bool


class Program(msgspec.Struct, frozen=True):
    """A protocol and everything it runs over, as one table that can be written as JSON.

    `machines` has qualified names (`scale_up.existing`, `serving.engine`). `roles` tells for each role of an engine
    which machines live in it, the operation's own first. `started` are those that run before the operation begins.
    """

    name: str
    machines: dict[str, Machine]
    roles: dict[str, tuple[str, ...]]
    started: dict[str, tuple[str, ...]]
    groups: dict[str, tuple[str, ...]]
    kinds: dict[str, str]
    votes: tuple[str, ...]
    waves: dict[str, str]
    deadlines: dict[str, float]
    routes: tuple[Route, ...]
    steps: dict[str, StepMeaning]
    facts: dict[str, str]
    leaks: tuple[str, ...] = ()
    suspends: tuple[str, ...] = ()
    wishes: dict[str, str] = {}

    @property
    def coordinator(self) -> str:
        """The qualified name of the coordinator's machine; empty if the protocol has none."""
        name = f"{self.name}.{COORDINATOR}"
        return name if name in self.machines else ""

    def routes_from(self, machine: str, message: str) -> tuple[Route, ...]:
        """Where a message goes that this machine sends."""
        return tuple(route for route in self.routes if route.sender == machine and route.message == message)

    def senders(self, machine: str, message: str) -> tuple[str, ...]:
        """Which machines send this message to this machine."""
        return tuple(route.sender for route in self.routes if route.receiver == machine and route.message == message)


def compile_protocol(protocol: Protocol, instead: dict[str, Protocol] | None = None) -> Program:
    """Composes one protocol; raises `SpecError` when it names a protocol, role or machine that does not exist.

    `instead` holds protocols, by the name under which `over:` asks for them, that take the place of the shipped ones.
    """
    parts = [*_over(protocol, (), instead or {}), protocol]
    machines = {f"{part.name}.{role}": machine for part in parts for role, machine in part.machines.items()}
    roles = _roles(protocol, machines)
    routes = _routes(parts, machines, roles)
    return Program(
        name=protocol.name,
        machines=machines,
        roles=roles,
        started=_started(protocol, machines, roles, routes),
        groups=protocol.groups,
        kinds={kind: queue for part in parts for kind, queue in part.kinds.items()},
        votes=tuple(vote for part in parts for vote in part.votes),
        waves={wake: answer for part in parts for wake, answer in part.waves.items()},
        deadlines={name: seconds for part in parts for name, seconds in part.deadlines.items()},
        routes=routes,
        steps={
            step.name: step.meaning for m in machines.values() for state in m.states.values() for step in state.steps
        },
        facts={fact: name for part in parts for fact, name in vocabulary_at(part.vocabulary).facts.items()},
        leaks=tuple(dict.fromkeys(fact for part in parts for fact in vocabulary_at(part.vocabulary).leaks)),
        suspends=tuple(dict.fromkeys(fact for part in parts for fact in vocabulary_at(part.vocabulary).suspends)),
        wishes=_wishes(parts, routes),
    )


def _wishes(parts: list[Protocol], routes: tuple[Route, ...]) -> dict[str, str]:
    """The wishes of all vocabularies that the environment of this program has."""
    told = {route.message for route in routes if route.sender == "environment"}
    every = {message: fact for part in parts for message, fact in vocabulary_at(part.vocabulary).wishes.items()}
    return {message: fact for message, fact in every.items() if message in told}


@cache
def program(name: str) -> Program:
    """The compiled program of a shipped protocol."""
    return compile_protocol(load(name))


def _over(protocol: Protocol, above: tuple[str, ...], instead: dict[str, Protocol]) -> list[Protocol]:
    if protocol.name in above:
        raise SpecError(f"{protocol.path}: `over:` goes in a circle: {' -> '.join([*above, protocol.name])}")
    found: list[Protocol] = []
    for name in protocol.over:
        part = instead.get(name) or load(name)
        for below in [*_over(part, (*above, protocol.name), instead), part]:
            if below.name not in [other.name for other in found]:
                found.append(below)
    return found


def _roles(protocol: Protocol, machines: dict[str, Machine]) -> dict[str, tuple[str, ...]]:
    """Which machines live in an engine of each role; without `runs` or groups of roles there is one, `engine`."""
    own = {role: machine for role, machine in protocol.machines.items() if role != COORDINATOR}
    grouped = {role for roles in protocol.groups.values() for role in roles}
    if any(machine.runs for machine in own.values()) or grouped & set(own):
        for role, machine in own.items():
            missing = [name for name in machine.runs if name not in machines]
            if missing:
                place, known = f"{protocol.path}: machines.{role}.runs", ", ".join(machines)
                raise SpecError(f"{place}: no machine `{missing[0]}`; `over:` brings {known}")
        return {role: (f"{protocol.name}.{role}", *machine.runs) for role, machine in own.items()}
    inside = [name for name in machines if not name.endswith("." + COORDINATOR)]
    return {"engine": tuple(sorted(inside, key=lambda name: not name.startswith(protocol.name + ".")))}


def _started(
    protocol: Protocol, machines: dict[str, Machine], roles: dict[str, tuple[str, ...]], routes: tuple[Route, ...]
) -> dict[str, tuple[str, ...]]:
    """The machines that run already on members of `active`: those that something outside their protocol starts."""

    def runs(name: str) -> bool:
        starts = machines[name].starts
        return any(r.receiver == name and r.message in starts and r.sender == "outside" for r in routes)

    active = protocol.groups.get("active", ())
    return {
        role: tuple(filter(runs, inside)) if active == ("engine",) or role in active else ()
        for role, inside in roles.items()
    }


def _routes(
    parts: list[Protocol], machines: dict[str, Machine], roles: dict[str, tuple[str, ...]]
) -> tuple[Route, ...]:
    routes: dict[Route, None] = {}
    for part in parts:
        for message in part.messages.values():
            for sender in message.senders:
                for receiver in message.receivers:
                    source, target = (_qualified(part, name, machines) for name in (sender, receiver))
                    local = any(source in inside and target in inside for inside in roles.values()) and source != target
                    routes[Route(message.name, source, target, local, source == target)] = None
    return tuple(routes)


def _qualified(part: Protocol, name: str, machines: dict[str, Machine]) -> str:
    if name in OUTSIDE:
        return name
    full = name if "." in name else f"{part.name}.{name}"
    if full not in machines:
        raise SpecError(f"{part.path}: messages: no machine `{full}`; there are {', '.join(machines)}")
    return full
