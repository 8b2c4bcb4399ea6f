"""When a rebalance is due, and how it runs beside the forward steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from elasticfsm.compile import Program

Pace = Literal["async", "sync", "off"]
HELD = ("copying", "waiting")  # states of rebalance.main in which a layer is being read


class Cadence:
    """Says that a rebalance is due `interval` steps after the last plan, counted from the switch of the generation.

    `step` returns the agreed number of the next step of the generation: it is compared by all members in every step,
    and a plan begins after the same step on all of them, so `due` comes at the same step everywhere. With `off` it
    never comes: experts then move only where a rescale asks for it. Main loop only.
    """

    def __init__(self, pace: Pace, interval: int, step: Callable[[], int]) -> None:
        self._pace = pace
        self._interval = interval
        self._step = step
        self._next = interval

    def due(self) -> bool:
        """Whether the interval is over."""
        return self._pace != "off" and self._step() >= self._next

    def planned(self) -> None:
        """A plan begins now, on all members."""
        self._next = self._step() + self._interval

    def switched(self) -> None:
        """A generation begins; its steps are counted from zero."""
        self._next = self._interval


def synchronous(program: Program) -> Program:
    """Return the program in which no forward step begins while a layer is read: EPLB between steps, not beside them.

    The machines are the same; `serves: false` in the states that wait for the worker takes behaviours away and adds
    none, so what was proved safe for the program holds for this one.
    """
    main = program.machines["rebalance.main"]
    states = {
        name: msgspec.structs.replace(state, serves=False) if name in HELD else state
        for name, state in main.states.items()
    }
    return msgspec.structs.replace(
        program, machines={**program.machines, "rebalance.main": msgspec.structs.replace(main, states=states)}
    )
