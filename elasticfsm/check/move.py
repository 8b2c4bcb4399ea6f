"""What a move of one engine is, and who chose it."""

from __future__ import annotations

from dataclasses import dataclass

from elasticfsm.check.tables import StepTable
from elasticfsm.check.world import Local

ENVIRONMENT, BUSY, QUIET, REFUSAL = 1, 2, 4, 8  # tags of moves: who chose them
FAULT, AGREED, EXPIRED = 16, 32, 64  # ... a fault; a forward step whose votes were counted; a deadline that expired
Edge = tuple[str, str, str]  # machine, state, guard: one way out of a state


@dataclass(frozen=True, slots=True)
class Move:
    """One possible move of an engine.

    `machine` moves, `target` is the local state afterwards. `peers` are messages that go to all peers, `takes` one that
    came from a peer, `enters` (generation, kind, step) a collective it enters, `needs` facts of other engines, `lacks`
    some that must not hold on all of them, `closes` a generation it destroys, `cut` one on which it can only fail
    because a member has closed its side.
    `cost` is what the budget of the environment must allow (a failure of a step that touches nobody else).
    """

    machine: int
    verb: str
    text: str
    target: Local
    bad: tuple[str, ...] = ()
    tag: int = 0
    edges: tuple[Edge, ...] = ()
    peers: tuple[int, ...] = ()
    takes: int = -1
    enters: tuple[int, int, StepTable] | None = None
    needs: tuple[tuple[str, int], ...] = ()
    lacks: tuple[tuple[str, int], ...] = ()
    requires: tuple[tuple[str, int], ...] = ()
    closes: int = -1
    cut: int = -1
    harsh: bool = False  # a failure on a group that is no standby one
    cost: int = -1
