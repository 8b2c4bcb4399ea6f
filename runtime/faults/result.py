"""What becomes of a cell, and what a fault needs while it lasts."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import msgspec

from .cells import SECONDS, Cell
from .rig import Rig


class Result(msgspec.Struct, kw_only=True):
    """What became of a cell. `problems` is empty when it passed."""

    name: str
    operation: str
    role: str
    machine: str
    where: str
    kind: str
    outcome: str = ""
    allowed: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""
    problems: list[str] = []

    @property
    def passed(self) -> bool:
        """Whether everything was as it must be."""
        return not self.problems


class Waker:
    """Continues a stopped process after its seconds; one that hangs stays as it is."""

    def __init__(self, rig: Rig, cell: Cell) -> None:
        self._rig = rig
        self._seconds = SECONDS["stop"] * rig.timescale if cell.kind == "stop" else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Waker:
        if self._seconds is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(10)

    def _run(self) -> None:
        while (claimed := self._rig.post.claimed()) is None:
            if self._over.wait(0.02):
                return
        time.sleep(self._seconds or 0.0)
        with suppress(ProcessLookupError):
            os.kill(claimed.pid, signal.SIGCONT)
