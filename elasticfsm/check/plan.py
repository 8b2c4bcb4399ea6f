"""What is checked: which protocols, at which sizes, under which regimes."""

from __future__ import annotations

from dataclasses import dataclass

from elasticfsm.check.world import CALM, Regime, sizes_of
from elasticfsm.compile import Program

CANCEL = Regime(cancel=True)
ALONE = ("1", "2", "3", "4")
PAIRS = ("1+1", "2+1", "1+2", "2+2")


@dataclass(frozen=True)
class Task:
    """One run to do: `sizes` as text, for each role of an engine a number."""

    program: Program
    sizes: str
    regime: Regime

    @property
    def engines(self) -> dict[str, int]:
        """The sizes by role."""
        return sizes_of(self.program, self.sizes)


def tasks(program: Program, sizes: list[str] | None = None, quick: bool = False) -> list[Task]:
    """The runs of one protocol, smallest first; sizes that were asked for are checked under every regime."""
    if sizes:
        return [Task(program, size, regime) for size in sizes for regime in _regimes(program)]
    roles = len(program.roles)
    if roles == 1:
        return [Task(program, size, CALM) for size in (ALONE[:3] if quick else ALONE)]
    listed = PAIRS if roles == 2 else ("+".join("1" for _ in program.roles),)
    regimes = [CALM] if quick else _regimes(program)
    return [Task(program, size, regime) for regime in regimes for size in (listed[:2] if quick else listed)]


def _regimes(program: Program) -> list[Regime]:
    cancels = any(route.sender == "operator" and route.message == "cancel" for route in program.routes)
    return [CALM, CANCEL] if cancels else [CALM]
