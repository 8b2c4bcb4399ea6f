"""What one step of the whole system is."""

from __future__ import annotations

from typing import NamedTuple

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.move import Move
from elasticfsm.check.world import State

BOSS = -1  # `who` of a transition of the coordinator


class Interrupted(Exception):
    """A reduction was too bold: something was withdrawn, or serving engines lost a group. The run is repeated."""


class Transition(NamedTuple):
    """One step of the whole system: who moves, where it leads, which properties it refutes, who chose it."""

    target: State
    move: Move | BossMove
    who: int
    tag: int = 0
    bad: tuple[str, ...] = ()
    said: str = ""
