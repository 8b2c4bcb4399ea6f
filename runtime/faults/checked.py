"""What the checker says of the same fault: the endings that it finds in the model, cell by cell.

The model explores every moment of a fault and every order of what follows; so whatever outcome a real run has, and
whatever the rules allow, must be among its endings. It knows no full disk and no store, and no failure of a step
between two forward steps that touches nobody else: such cells have no verdict of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from elasticfsm.check.endings import Where, endings
from elasticfsm.check.world import Regime
from elasticfsm.compile import COORDINATOR, Program, compile_protocol
from elasticfsm.protocol import load

from .cells import RANK_0, STAYS, Cell

PARTS = ("abstract/busy", "abstract/still")  # what serving and experts do beside it is another question
SIZES = "1+1"
FAULTS: Mapping[str, tuple[str, Regime]] = {
    "kill": ("death", Regime(expiry="arbitrary", crashes=1)),
    "hang": ("death", Regime(expiry="arbitrary", crashes=1)),
    "exception": ("failure", Regime(expiry="arbitrary", failures=1)),
    "stop": ("slow", Regime(expiry="arbitrary")),
    "delay": ("slow", Regime(expiry="arbitrary")),
    "late": ("slow", Regime(expiry="arbitrary")),
    "drop": ("loss", Regime(expiry="arbitrary", losses=1)),
    "duplicate": ("duplicate", Regime(expiry="arbitrary", duplicates=1)),
}
Endings = Callable[[str, Regime], Mapping[Where, frozenset[str]]]


@cache
def explored(operation: str, regime: Regime) -> Mapping[Where, frozenset[str]]:
    """The endings of an operation under a regime; seconds each, kept."""
    return endings(_program(operation), SIZES, regime)


def _program(operation: str) -> Program:
    return compile_protocol(load(operation), {part.name: part for part in map(load, PARTS)})


def verdict(cell: Cell, of: Endings = explored) -> frozenset[str]:
    """How the operation of a cell may end in the model; empty where the model has no such fault."""
    if cell.kind not in FAULTS:
        return frozenset()
    kind, regime = FAULTS[cell.kind]
    alone = cell.role == COORDINATOR
    found = of(cell.operation, regime._replace(cancel=cell.cancel, restart=alone and kind == "death"))
    role = "" if alone else STAYS[cell.operation] if cell.role == RANK_0 else cell.role
    if cell.message and kind == "slow":  # it may be late for whoever waits for it: any moment of the operation
        return frozenset().union(*(words for where, words in found.items() if where.machine == cell.machine))
    return found.get(Where(kind, role, cell.machine, cell.state or cell.message), frozenset())
