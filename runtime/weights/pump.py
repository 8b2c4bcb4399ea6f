"""A thread that makes progress for passive peers at intervals, instead of one that spins."""

from __future__ import annotations

import threading
from collections.abc import Callable

PUMP_SECONDS = 0.002


class Pump:
    """Calls `turn` every few milliseconds between `start` and `stop`; its failure is raised by `check`."""

    def __init__(self, turn: Callable[[], None], name: str) -> None:
        self._turn = turn
        self._name = name
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin, if it is not running."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End and join the thread; idempotent. Not to be called with a lock held that `turn` waits for."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join()

    def check(self) -> None:
        """Raise what ended the thread, if anything did: its owner fails, it is never just gone."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(PUMP_SECONDS):
                self._turn()
        except BaseException as failure:  # kept for the owner, who raises it
            self._failure = failure
