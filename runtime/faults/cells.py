"""Every cell of the table, read from the compiled spec: a state or message that is added there appears by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache

import msgspec

from elasticfsm.compile import COORDINATOR, Program, program
from elasticfsm.protocol import Guard, Machine, State

from .fault import WIRE, Fault, Kind
from .leads import LEADS, Lead

RANK_0 = "rank 0"  # the first member, which computes plans and brings the map: a role of its own where faults are
OPERATIONS = ("scale_up", "scale_down")
STAYS = {"scale_up": "existing", "scale_down": "remaining"}
GOES = {"scale_up": "new", "scale_down": "removing"}
BESIDE = ("serving.engine", "rebalance.main", "rebalance.worker")  # machines of every engine
SECONDS = {"stop": 5.0, "delay": 30.0, "drop": 5.0, "late": 8.0}  # of a fault, times the scale
BROKEN = frozenset({"failed", "expired", "received broken"})  # nothing but another fault leads this way
UNDONE = BROKEN | {"received cancel", "answer not_all", "answer impossible"}  # and what only these lead to is sent


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell: a fault of a kind on a role, in a state (or on a message) of a machine, while `operation` runs.

    `cancel`: the operation is cancelled while it is prepared, because only an abort comes through this state. `quiet`:
    no request runs until the operation has begun, so that engines rest. `lead`: the fault that leads there, before.
    """

    operation: str
    role: str
    machine: str
    kind: Kind
    state: str = ""
    message: str = ""
    cancel: bool = False
    quiet: bool = False
    lead: Lead | None = None

    @property
    def name(self) -> str:
        """What `--only` looks at, such as `scale_up/new/building/kill`."""
        own = self.machine.partition(".")[0] == self.operation
        where = self.state or f"<{self.message}>"
        return "/".join((self.operation, self.role, where if own else f"{self.machine}:{where}", self.kind))

    def fault(self, members: tuple[str, ...], timescale: float, chosen: tuple[str, ...] | None = None) -> Fault:
        """What is armed for it while these engines serve, for one of the `chosen` if there are any."""
        fault = Fault(
            kind=self.kind,
            machine=self.machine,
            state=self.state,
            message=self.message,
            engines=victims(self.role, members) if chosen is None else chosen,
            seconds=SECONDS.get(self.kind, 0.0) * timescale,
        )
        lead = self.lead
        return fault if lead is None else lead.fault(victims(lead.role or self.role, members), timescale, fault)


def victims(role: str, members: tuple[str, ...]) -> tuple[str, ...]:
    """Whom a fault of this role shall meet while these engines serve; empty: whoever comes there first."""
    match role:
        case "existing" | "remaining":
            return (members[1],)
        case "removing":
            return (members[-1],)
        case "coordinator":
            return ("coordinator",)
        case _:
            return (members[0],) if role == RANK_0 else ()


def all_cells() -> list[Cell]:
    """Every cell, operation by operation, role by role, in the order of the spec."""
    return [cell for name in OPERATIONS for cell in _of(name)]


def _of(name: str) -> Iterator[Cell]:
    one = program(name)
    for role in (COORDINATOR, GOES[name], STAYS[name], RANK_0):
        own = one.machines[f"{name}.{STAYS[name] if role == RANK_0 else role}"]
        yield from _of_machine(name, role, f"{name}.{STAYS[name] if role == RANK_0 else role}", own)
        if role != RANK_0:
            yield from _of_messages(one, name, role)
    for machine in BESIDE:
        spec = one.machines[machine]
        if name == "scale_down":  # its drain and evacuation lead through all that an engine comes to that serves
            for role in (STAYS[name], RANK_0):
                yield from _of_machine(name, role, machine, spec, _reached(spec, spec.first))
        else:  # the rest is the way of a new one until it serves
            fresh = _reached(spec) - _reached(spec, spec.first)
            yield from (cell for cell in _of_machine(name, GOES[name], machine, spec, fresh) if cell.lead is None)


def _of_machine(
    operation: str, role: str, machine: str, spec: Machine, reached: Collection[str] | None = None
) -> Iterator[Cell]:
    usual = _usual(operation, spec)
    reached = _reached(spec) if reached is None else reached
    for state in spec.states.values():
        lead = LEADS.get((machine, state.name))
        if state.end or (state.name not in reached and lead is None):
            continue
        for kind in _kinds(role, state):
            yield Cell(
                operation=operation,
                role=role,
                machine=machine,
                kind=kind,
                state=state.name,
                cancel=lead is None and state.name not in usual and machine.startswith(operation + "."),
                lead=lead,
                quiet=machine == "serving.engine" and state.name != "stepping",
            )


def _kinds(role: str, state: State) -> Iterator[Kind]:
    """Exceptions and delays need a step; a stopped engine is either continued in time, or never (hang)."""
    yield from ("kill", "stop")
    if role == COORDINATOR:
        yield from ("store", "disk")
    elif role != RANK_0:
        yield "hang"
    if state.steps and role != RANK_0:
        yield from ("exception", "delay")


def _of_messages(one: Program, operation: str, role: str) -> Iterator[Cell]:
    machine = f"{operation}.{role}"
    sent = {message: None for state in one.machines[machine].states.values() for message in state.sends}
    for message in sent:
        routes = [route for route in one.routes_from(machine, message) if not route.local]
        broke = all(state.name == "failed" for state in one.machines[machine].states.values() if message in state.sends)
        for kind in WIRE if routes and not broke else ():  # `failed` itself needs another fault before
            yield Cell(
                operation=operation,
                role=role,
                machine=machine,
                kind=kind,
                message=message,
                cancel=_only_of_aborts(operation, one.machines[machine], message),
            )


def _only_of_aborts(operation: str, spec: Machine, message: str) -> bool:
    usual = _usual(operation, spec)
    return not any(message in state.sends for state in spec.states.values() if state.name in usual)


def _usual(operation: str, spec: Machine) -> set[str]:
    """The states that a run without fault, expiry and cancel comes through."""
    undone = UNDONE | {f"received {message}" for message in _of_undoing(operation)}
    return _closure(spec, lambda guard: str(guard) not in undone and guard.kind != "any")


@cache
def _of_undoing(operation: str) -> frozenset[str]:
    """The messages that the coordinator of an operation without fault, expiry and cancel never sends."""
    spec = program(operation).machines[f"{operation}.{COORDINATOR}"]
    usual = _closure(spec, lambda guard: str(guard) not in UNDONE and guard.kind != "any")
    sent = {message for state in spec.states.values() for message in state.sends}
    return frozenset(sent - {message for name in usual for message in spec.states[name].sends})


def _reached(spec: Machine, first: str = "") -> set[str]:
    """The states that one fault alone finds an engine in, with a cancel if it must be: from its start, or `first`."""
    return _closure(spec, lambda guard: str(guard) not in BROKEN, first)


def unreached() -> list[str]:
    """States that only another fault leads to and that have no lead: no cell has them."""
    found = []
    for name in OPERATIONS:
        for machine, spec in program(name).machines.items():
            if machine.startswith((name, "rebalance")):
                states = [state.name for state in spec.states.values() if not state.end]
                found += [each for each in states if each not in _reached(spec) and (machine, each) not in LEADS]
    return list(dict.fromkeys(found))


def _closure(spec: Machine, taken: Callable[[Guard], bool], first: str = "") -> set[str]:
    seen: set[str] = set()
    todo = [first] if first else [target for target in spec.starts.values() if not spec.states[target].end]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [way.target for way in spec.states[name].leave if taken(way.guard)]
    return seen
