"""Where threads stand still until somebody lets them go on: the order of everything is decided by the caller.

A thread that performs a list of steps comes to a gate before each step and inside each collective. Only one thread runs
at a time: whoever opens a gate waits until that thread stands at its next gate, or has ended its list.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elasticfsm.errors import ElasticError, GroupCut
from elasticfsm.protocol import Step
from elasticfsm.seat import Cancel

PATIENCE = 20.0  # seconds of real time that a thread may take from one gate to the next; a bug if it takes longer


class Lost(ElasticError):
    """A thread did not come to its next gate."""


class Standing:
    """A thread at a gate: before a step, or inside a collective (`inside`)."""

    def __init__(self, step: Step, inside: bool) -> None:
        self.step = step
        self.inside = inside
        self.order = ""
        self.opened = threading.Event()


class Gates:
    """The gates of one stage; a list of steps is known by its withdrawal (`Job.cancel`)."""

    def __init__(self) -> None:
        self.standing: dict[Cancel, Standing] = {}
        self._changed = threading.Condition()

    def pass_(self, cancel: Cancel, step: Step, inside: bool) -> str:
        """Called by the thread: stands until the gate is opened and returns the order; GroupCut if withdrawn."""
        mine = Standing(step, inside)
        with self._changed:
            self.standing[cancel] = mine
            self._changed.notify_all()
        mine.opened.wait()
        if cancel.is_set():
            raise GroupCut(f"withdrawn {'in' if inside else 'before'} {step}")
        return mine.order

    def open(self, cancel: Cancel, order: str = "") -> None:
        """Lets the thread of that list go on."""
        with self._changed:
            gone = self.standing.pop(cancel)
        gone.order = order
        gone.opened.set()

    def tell(self) -> None:
        """Something has changed for which a caller of `until` may wait."""
        with self._changed:
            self._changed.notify_all()

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Waits until it is true; raises `Lost` after some seconds of real time."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while not true():
                if time.monotonic() > end:
                    raise Lost(f"{what}: a thread did not come to its next gate within {PATIENCE:g} s")
                self._changed.wait(0.001)  # not everything that a thread does is told
