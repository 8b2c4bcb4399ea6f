"""What the checker says of the same fault: the endings that it finds in the model, cell by cell.

The model explores every moment of a fault and every order of what follows; so whatever outcome a real run has, and
whatever the rules allow, must be among its endings. It knows no full disk and no store, and no failure of a step
between two forward steps that touches nobody else, and experts and idle engines are left out: such cells have no
verdict of it. The wire of the runtime sends again what is lost, so a lost message may also be no more than a late one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from elasticfsm.check.endings import Where, endings
from elasticfsm.check.world import Regime
from elasticfsm.compile import COORDINATOR, Program, compile_protocol, program
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
Endings = Callable[[str, str, Regime], Mapping[Where, frozenset[str]]]


@cache
def explored(operation: str, sizes: str, regime: Regime) -> Mapping[Where, frozenset[str]]:
    """The endings of an operation under a regime; seconds each, kept."""
    return endings(_program(operation), sizes, regime)


def _program(operation: str) -> Program:
    return compile_protocol(load(operation), {part.name: part for part in map(load, PARTS)})


def verdict(cell: Cell, of: Endings = explored) -> frozenset[str]:
    """How the operation of a cell may end in the model; empty where the model has no such fault."""
    if cell.kind not in FAULTS or cell.lead is not None:
        return frozenset()
    kind, regime = FAULTS[cell.kind]
    alone = cell.role == COORDINATOR
    regime = regime._replace(cancel=cell.cancel, restart=alone and kind == "death")
    found = of(cell.operation, SIZES, regime)
    role = "" if alone else STAYS[cell.operation] if cell.role == RANK_0 else cell.role
    words = found.get(Where(kind, role, cell.machine, cell.state or cell.message), frozenset())
    if kind == "death" and role == "existing":  # who has peers that stay: without deadlines, which the small size has
        larger = of(cell.operation, "2+1", regime._replace(expiry="off"))
        words |= larger.get(Where(kind, role, cell.machine, cell.state), frozenset())
    if cell.message:
        states = program(cell.operation).machines[cell.machine].states.values()
        sending = [state.name for state in states if cell.message in state.sends]
        late = of(cell.operation, SIZES, FAULTS["late"][1]._replace(cancel=cell.cancel))
        words = words.union(*(late.get(Where("slow", role, cell.machine, name), frozenset()) for name in sending))
    return words
