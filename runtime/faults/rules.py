"""Which outcomes the protocol allows for a fault: its rules, read from the spec where it says them."""

from __future__ import annotations

from typing import Literal

import msgspec

from elasticfsm.compile import COORDINATOR, program
from elasticfsm.protocol import Guard, Machine, State

from .cells import BESIDE, Cell

Outcome = Literal["completed", "aborted", "failed"]
END = {"completed": "done", "aborted": "aborted"}
EITHER: tuple[Outcome, ...] = ("completed", "aborted")


def allowed(cell: Cell) -> tuple[Outcome, ...]:
    """The outcomes of the operation that the protocol's rules allow, the one to be expected first."""
    if cell.lead is not None:
        return _second(cell)
    if cell.message:
        sending = [state for state in _machine(cell).states.values() if cell.message in state.sends]
        return _led(cell, *(state.name for state in sending))
    state = _machine(cell).states[cell.state]
    if cell.role == COORDINATOR:
        return _coordinator(cell, state)
    match cell.kind:
        case "kill" | "hang":
            return _death(cell, state)
        case "exception":
            return _exception(cell, state)
        case _:
            return _led(cell, cell.state)


def _second(cell: Cell) -> tuple[Outcome, ...]:
    """After a first fault: a death or a failure counts for itself, all else leaves it at what the first one led to.

    A new engine that parts has left a generation that others use, so nothing decides any more but who noticed first.
    """
    alone = msgspec.structs.replace(cell, lead=None)
    if cell.kind in ("kill", "hang", "exception", "disk") and (cell.machine, cell.state) != ("scale_up.new", "parting"):
        return allowed(alone)
    if cell.role == COORDINATOR:
        return allowed(alone)
    lead = cell.lead
    if lead is None:
        return EITHER
    role = lead.role or cell.role
    return allowed(
        Cell(
            operation=cell.operation,
            role=role,
            machine=lead.machine,
            kind=lead.kind,
            state=lead.state,
            message=lead.message,
            cancel=lead.cancel,
        )
    )


def _led(cell: Cell, *where: str) -> tuple[Outcome, ...]:
    """The ends that these states of the own machine lead to when all is only late; other machines decide nothing."""
    if cell.machine.partition(".")[0] != cell.operation:
        return EITHER
    ends = set().union(*(_ends(_machine(cell), state) for state in where))
    expected: tuple[Outcome, ...] = ("aborted", "completed") if cell.cancel else EITHER
    return tuple(word for word in expected if END[word] in ends) or ("failed",)


def _ends(machine: Machine, state: str) -> set[str]:
    """The ends `done` and `aborted` that a state leads to; what completes goes back only after another fault."""
    seen, todo = set(), [state]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            targets = [machine.states[way.target] for way in machine.states[name].leave]
            back = machine.states[name].phase == "completing"
            todo += [each.name for each in targets if not (back and each.phase == "aborting")]
    return seen & set(END.values())


def _machine(cell: Cell) -> Machine:
    return program(cell.operation).machines[cell.machine]


def _death(cell: Cell, state: State) -> tuple[Outcome, ...]:
    """A serving engine's death ends the deployment; a new one's costs nothing until its join has succeeded.

    A removing engine serves until it has left. Where the coordinator waits for those that live, the rest may be done.
    """
    if cell.role == "new" and cell.machine in BESIDE:  # these run from the moment on when its join has succeeded
        return ("failed", "aborted")
    if cell.role == "new" and state.phase != "completing":
        return ("failed", "aborted") if state.phase == "starting" else ("aborted",)
    if cell.role == "removing" and state.phase == "completing":
        return ("completed",)
    if cell.role == "removing" and state.phase not in ("preparing", "aborting"):
        return ("completed", "failed")
    if state.phase == "aborting":
        return ("failed", "aborted")
    return ("failed", "completed") if state.name == "retiring" and cell.operation == "scale_down" else ("failed",)


def _exception(cell: Cell, state: State) -> tuple[Outcome, ...]:
    """Where the spec's way out of a failed step leads: to the abort, or to a failure that is said."""
    target = next((way.target for way in state.leave if way.guard.kind == "failed"), "")
    if cell.machine.partition(".")[0] != cell.operation:  # half a layer in place is a wrong map somewhere
        return ("failed",) if cell.machine == "serving.engine" or cell.state == "applying" else EITHER
    if cell.role == "new" and state.phase == "starting":
        return ("failed", "aborted")
    return ("failed",) if target == "failed" else _led(cell, target)


def _coordinator(cell: Cell, state: State) -> tuple[Outcome, ...]:
    """Before it has sent `vote` nobody can switch, so whatever stops it there is undone; afterwards engines decide."""
    match cell.kind:
        case "disk":
            return _unwritten(cell)
        case "kill" if state.phase == "completing":  # what is decided the next one completes, whatever had failed
            return ("completed",)
        case "exception":
            target = next((way.target for way in state.leave if way.guard.kind == "failed"), "")
            left = _led(cell, target)
        case _:
            left = _led(cell, cell.state)
    stopped = cell.kind in ("kill", "exception") and len(left) > 1 and _votes_later(cell)
    return ("aborted",) if stopped else left


def _unwritten(cell: Cell) -> tuple[Outcome, ...]:
    """The ends that are left when no step can write any more, here and later, and nothing else goes wrong."""
    states = _machine(cell).states
    seen, todo = set(), [cell.state]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        writes = any(step.name == "journal.write" for step in states[name].steps)
        todo += [way.target for way in states[name].leave if _open(way.guard, writes)]
    outcomes: tuple[Outcome, ...] = ("aborted", "completed", "failed")
    return tuple(word for word in outcomes if END.get(word, word) in seen)


def _open(guard: Guard, writes: bool) -> bool:
    """Whether a way is taken although nothing but the disk is broken."""
    if guard.kind in ("failed", "done"):
        return (guard.kind == "failed") == writes
    return str(guard) not in ("any failed", "any lost", "any died", "answer impossible", "received cancel")


def _votes_later(cell: Cell) -> bool:
    """Whether the state of the coordinator that proposes the switch is still to come."""
    states = _machine(cell).states
    seen, todo = {cell.state}, [way.target for way in states[cell.state].leave]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [way.target for way in states[name].leave]
    later = [states[name] for name in seen - {cell.state}]
    return any("vote" in state.sends and state.phase == "committing" for state in later)
