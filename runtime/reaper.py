"""The reaper: frees abandoned groups, operations and buffers once nothing can touch them any more.

A group with an operation in flight blocks whoever drops it until that operation ends, and the operation may write into
its buffers until then. So whoever abandons a group cuts its connections first and gives everything to this thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .deadline import Deadline

_PAUSE = 0.01  # seconds between two looks at what is not settled yet


@dataclass
class Remains:
    """Things that must stay alive until `settled()`; `label` names them in reports."""

    label: str
    settled: Callable[[], bool]
    things: list[object]


class Reaper:
    """One daemon thread per process, started by the first thing it is given."""

    def __init__(self) -> None:
        self._held: list[Remains] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def take(self, label: str, settled: Callable[[], bool], things: list[object]) -> None:
        """Keep `things` until `settled()` is true, then drop them; returns at once."""
        with self._changed:
            self._held.append(Remains(label, settled, things))
            if self._thread is None:
                self._stopping = False
                self._thread = threading.Thread(target=self._run, name="reaper", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def left(self) -> list[str]:
        """Labels of what is not freed yet."""
        with self._changed:
            return [each.label for each in self._held]

    def wait_empty(self, deadline: Deadline) -> None:
        """Wait until everything is freed; DeadlineExpired or GroupCut (cancelled) otherwise."""
        with self._changed:
            while self._held:
                self._changed.wait(deadline.slice())

    def close(self, within: float) -> list[str]:
        """Free what can be freed within so many seconds, end the thread, and return the labels of what remained."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, within)
            self._stopping = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(max(1.0, within))
        return self.left()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held or self._stopping)
                if self._stopping:
                    return
                held = list(self._held)
            for each in held:
                self._free(each)
            with self._changed:
                if self._held and not self._stopping:
                    self._changed.wait(_PAUSE)

    def _free(self, remains: Remains) -> None:
        if not remains.settled():
            return
        remains.things.clear()  # outside the lock: dropping a group may take a while
        with self._changed:
            self._held.remove(remains)
            self._changed.notify_all()
