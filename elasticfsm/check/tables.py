"""A program as plain tables with small numbers, so that the explorer never looks a name up."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from elasticfsm.check.facts import Facts, strip_all
from elasticfsm.compile import Program
from elasticfsm.protocol import Leave, Machine, State, Step

KINDS = ("world", "dp", "ep", "eplb")
OLD, NEW = 0, 1  # the two generations; what `active`, `standby` and `retired` name depends on the engine


@dataclass(frozen=True, slots=True)
class StepTable:
    """One step of a list. Facts are bit masks; `elsewhere`: (role, mask) of facts that a whole role has."""

    text: str
    name: str
    means: str
    kind: int
    group: str
    requires: int
    requires_elsewhere: tuple[tuple[str, int], ...]
    awaits: int
    awaits_elsewhere: tuple[tuple[str, int], ...]
    provides: int
    ends: int
    asks: int
    answers: tuple[str, ...]
    closes: bool
    waits_for_all: bool
    argument: str
    journal: str


@dataclass(frozen=True, slots=True)
class WayTable:
    """One way out of a state. `mail`: inbox bits that satisfy it; `sources`: (role, outbox bit) to look at."""

    kind: str
    name: str
    target: int
    mail: tuple[int, ...]
    peer: int
    outside: str
    sources: tuple[tuple[str, int], ...]
    key: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class StateTable:
    """One state; on entering it sets `inbox` and `outbox` bits, sends `peers` messages and `orders` (role, bits)."""

    name: str
    thread: str
    steps: tuple[StepTable, ...]
    leave: tuple[WayTable, ...]
    serves: bool
    rests: bool
    end: bool
    votes: int
    inbox: int
    outbox: int
    peers: tuple[int, ...]
    orders: tuple[tuple[str, int], ...]

    def __hash__(self) -> int:
        """By name: the whole of a state is compared, but not read each time that something about it is looked up."""
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class MachineTable:
    """One machine of one role; `starts` are (inbox bits, peer message, target state)."""

    name: str
    states: tuple[StateTable, ...]
    starts: tuple[tuple[tuple[int, ...], int, int, str], ...]
    holds: int
    worker: bool
    serving: bool
    first: int


@dataclass(slots=True)
class Mail:
    """Numbers of messages: inbox bits of (message, sender, receiver), outbox bits of (message, sender), peers."""

    inbox: dict[tuple[str, str, str], int] = field(default_factory=dict)
    outbox: dict[tuple[str, str], int] = field(default_factory=dict)
    peers: dict[tuple[str, str], int] = field(default_factory=dict)


class Tables:
    """Everything the explorer needs to know about a program, apart from sizes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.facts = Facts(program)
        self.votes = {vote: 1 << index for index, vote in enumerate(dict.fromkeys(program.votes))}
        self.mail = _number_mail(program)
        self.roles = list(program.roles)
        self.machines = {
            role: tuple(self._machine(name, program.machines[name]) for name in inside)
            for role, inside in program.roles.items()
        }
        coordinator = program.coordinator
        self.coordinator = self._machine(coordinator, program.machines[coordinator]) if coordinator else None
        self.alarms = 0  # outbox bits at which the coordinator looks with `any` or `received`: they change its course
        for state in self.coordinator.states if self.coordinator else ():
            for way in state.leave:
                if way.kind in ("any", "received"):
                    self.alarms |= sum({bit for _, bit in way.sources})
        self.interrupts = 0  # inbox bits that cancel a running list
        for machines in self.machines.values():
            for state in (state for machine in machines for state in machine.states):
                if state.thread == "background":
                    for way in state.leave:
                        self.interrupts |= sum(way.mail)
        standby = self.facts.bits.get("standby joined", 0)
        self.joins = frozenset(step.name for step in self.steps() if step.provides & standby)
        self.elsewhere = 0  # facts that some step asks for on other engines
        for step in self.steps():
            self.elsewhere |= reduce(or_, (mask for _, mask in (*step.awaits_elsewhere, *step.requires_elsewhere)), 0)
            self.elsewhere |= step.asks if step.means == "local" else 0
        self.device = frozenset(step.name for step in self.steps() if program.steps[step.name].queue == "device")
        self.leaks = {role: self._leaks(role) for role in self.roles}
        self.wakes = tuple(number for (message, _), number in self.mail.peers.items() if message in program.waves)
        self.inner = sum(bit for (_, sender, _), bit in self.mail.inbox.items() if sender != coordinator)
        self.wake_mail = sum(
            bit
            for (message, sender, _), bit in self.mail.inbox.items()
            if message in program.waves and sender == coordinator
        )
        self.wave_ends = frozenset(program.waves.values())

    def _leaks(self, role: str) -> dict[str, int]:
        """The facts that must not hold at an end; who is no member of the new generation leaves the old one, too."""
        always = self.facts.known(self.program.leaks)
        parts = always and self.members(NEW) and role not in self.members(NEW)
        return {"done": always | (self.facts.known(["active exists"]) if parts else 0), "aborted": always}

    def steps(self) -> list[StepTable]:
        """Every step of every machine that lives in an engine."""
        machines = [machine for inside in self.machines.values() for machine in inside]
        return [step for machine in machines for state in machine.states for step in state.steps]

    def members(self, generation: int) -> tuple[str, ...]:
        """The roles that are members of a generation."""
        groups = self.program.groups
        named = groups.get("active" if generation == OLD else "standby", ())
        return tuple(self.roles) if named == ("engine",) else tuple(named)

    def resolve(self, role: str, switched: bool, name: str) -> int | None:
        """Which generation a group name means on an engine of a role; None if the engine has no such group."""
        if name == "active":
            generation = NEW if switched else OLD
        elif name == "standby" and not switched:
            generation = NEW
        elif name == "retired" and switched:
            generation = OLD
        else:
            return None
        return generation if role in self.members(generation) else None

    def _machine(self, name: str, machine: Machine) -> MachineTable:
        order = {state: index for index, state in enumerate(machine.states)}
        states = tuple(self._state(name, machine, state, order) for state in machine.states.values())
        lists = {state.thread for state in states} - {""}
        starts = tuple(
            (
                tuple(bit for (message, _, to), bit in self.mail.inbox.items() if (message, to) == (start, name)),
                self.mail.peers.get((start, name), -1),
                order[target],
                start,
            )
            for start, target in machine.starts.items()
        )
        return MachineTable(
            name=name,
            states=states,
            starts=starts,
            holds=self.facts.mask(machine.holds),
            worker=bool(machine.inside) and lists == {"background"},
            serving=any(step.means == "agree" for state in states for step in state.steps),
            first=order[machine.first],
        )

    def _state(self, name: str, machine: Machine, state: State, order: dict[str, int]) -> StateTable:
        inbox = outbox = 0
        peers: list[int] = []
        orders: dict[str, int] = {}
        for message in state.sends:
            for route in self.program.routes_from(name, message):
                key = (message, name, route.receiver)
                if route.peers:
                    peers.append(self.mail.peers[message, name])
                elif route.local:
                    inbox |= self.mail.inbox[key]
                elif route.receiver == self.program.coordinator:
                    outbox |= self.mail.outbox[message, name]
                elif name == self.program.coordinator:
                    role = next(role for role, inside in self.program.roles.items() if route.receiver in inside)
                    orders[role] = orders.get(role, 0) | self.mail.inbox[key]
        return StateTable(
            name=state.name,
            thread=state.thread,
            steps=tuple(self._step(step) for step in state.steps),
            leave=tuple(self._way(name, state, way, order) for way in state.leave),
            serves=state.serves,
            rests=state.within == "forever" or state.end,
            end=state.end,
            votes=sum(self.votes[vote] for vote in set(state.asked())),
            inbox=inbox,
            outbox=outbox,
            peers=tuple(peers),
            orders=tuple(orders.items()),
        )

    def _step(self, step: Step) -> StepTable:
        meaning = step.meaning
        own: dict[str, int] = {}
        elsewhere: dict[str, tuple[tuple[str, int], ...]] = {}
        for what in ("requires", "awaits"):
            split = [strip_all(fact) for fact in step.facts(what)]
            own[what] = self.facts.mask(fact for role, fact in split if not role)
            elsewhere[what] = tuple((role, self.facts.mask([fact])) for role, fact in split if role)
        return StepTable(
            text=str(step),
            name=step.name,
            means=meaning.means,
            kind=KINDS.index(meaning.kind) if meaning.kind else -1,
            group=step.argument if step.argument in ("active", "standby", "retired") else "",
            requires=own["requires"],
            requires_elsewhere=elsewhere["requires"],
            awaits=own["awaits"],
            awaits_elsewhere=elsewhere["awaits"],
            provides=self.facts.mask(step.facts("provides")),
            ends=self.facts.mask(step.facts("ends")),
            asks=self.facts.mask([meaning.asks]) if meaning.asks else 0,
            answers=tuple(meaning.answers),
            closes=any(fact.endswith(" *") for fact in step.facts("ends")),
            waits_for_all=meaning.synchronises == "all",
            argument=step.argument,
            journal=meaning.journal,
        )

    def _way(self, name: str, state: State, way: Leave, order: dict[str, int]) -> WayTable:
        guard = way.guard
        senders = self.program.senders(name, guard.name)
        outside = next((sender for sender in senders if sender in ("operator", "environment", "earlier")), "")
        return WayTable(
            kind=guard.kind,
            name=guard.name,
            target=order[way.target],
            mail=tuple(b for (message, _, to), b in self.mail.inbox.items() if (message, to) == (guard.name, name)),
            peer=self.mail.peers.get((guard.name, name), -1),
            outside=outside,
            sources=tuple(
                (role, self.mail.outbox[guard.name, sender])
                for sender in senders
                for role, inside in self.program.roles.items()
                if sender in inside and (guard.name, sender) in self.mail.outbox
            ),
            key=(name, state.name, str(guard)),
        )


def _number_mail(program: Program) -> Mail:
    mail = Mail()
    inside = {name for names in program.roles.values() for name in names}
    for route in program.routes:
        if route.peers:
            mail.peers.setdefault((route.message, route.receiver), len(mail.peers))
        elif route.receiver in inside and (route.local or route.sender == program.coordinator != ""):
            mail.inbox.setdefault((route.message, route.sender, route.receiver), 1 << len(mail.inbox))
        elif route.sender in inside and route.receiver == program.coordinator != "":
            mail.outbox.setdefault((route.message, route.sender), 1 << len(mail.outbox))
    return mail
