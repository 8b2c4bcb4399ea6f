"""Which outcomes the protocol allows for a fault: its rules, read from the spec where it says them."""

from __future__ import annotations

from typing import Literal

from elasticfsm.compile import COORDINATOR, program
from elasticfsm.protocol import State

from .cells import BESIDE, Cell

Outcome = Literal["completed", "aborted", "failed"]
EITHER: tuple[Outcome, ...] = ("completed", "aborted")


def allowed(cell: Cell) -> tuple[Outcome, ...]:
    """The outcomes of the operation that the protocol's rules allow, the one to be expected first."""
    if cell.message:
        return ("aborted", "completed") if cell.cancel else EITHER
    state = program(cell.operation).machines[cell.machine].states[cell.state]
    if cell.role == COORDINATOR:
        return _coordinator(cell, state)
    match cell.kind:
        case "kill" | "hang":
            return _death(cell, state)
        case "exception":
            return _exception(cell, state)
        case _:
            return ("aborted", "completed") if cell.cancel else EITHER


def _death(cell: Cell, state: State) -> tuple[Outcome, ...]:
    """A serving engine's death ends the deployment; a new one's costs nothing until its join has succeeded.

    A removing engine serves until it has left; whoever dies when all are done is no part of the operation any more.
    """
    if cell.role == "new" and cell.machine in BESIDE:  # these run from the moment on when its join has succeeded
        return ("failed", "aborted")
    if cell.role == "new" and state.phase != "completing":
        return ("failed", "aborted") if state.phase == "starting" else ("aborted",)
    if cell.role == "removing" and state.phase not in ("preparing", "aborting"):
        return ("completed", "failed")
    if state.phase == "aborting":
        return ("failed", "aborted")
    return ("failed", "completed") if state.name == "retiring" else ("failed",)


def _exception(cell: Cell, state: State) -> tuple[Outcome, ...]:
    """Where the spec's way out of a failed step leads: to the abort, or to a failure that is said."""
    target = next((way.target for way in state.leave if way.guard.kind == "failed"), "")
    if cell.machine.partition(".")[0] != cell.operation:  # half a layer in place is a wrong map somewhere
        return ("failed",) if cell.machine == "serving.engine" or cell.state == "applying" else EITHER
    if cell.role == "new" and state.phase == "starting":
        return ("failed", "aborted")
    return ("failed",) if target == "failed" else ("aborted",)


def _coordinator(cell: Cell, state: State) -> tuple[Outcome, ...]:
    match cell.kind:
        case "exception":
            target = next((way.target for way in state.leave if way.guard.kind == "failed"), "")
            return ("failed",) if target == "failed" else ("aborted", "completed")
        case "disk":  # a decision that cannot be written is not taken: undone before the commit, said after it
            return ("aborted", "failed", "completed")
        case _:
            return ("aborted", "completed") if cell.cancel else EITHER
