"""The record of operations: one is active at most, a repeated request joins it, and phases are said in known words."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Literal

import msgspec

from elasticfsm.errors import DeadlineExpired, OperationRunning

Phase = Literal["idle", "preparing", "committing", "completed", "failed", "aborted"]
ENDED = frozenset({"completed", "failed", "aborted"})

# The phases of the coordinator's machine in the words that operators know.
WORDS: dict[str, Phase] = {
    "preparing": "preparing",
    "committing": "committing",
    "asking": "committing",
    "completing": "committing",
    "aborting": "committing",
    "done": "completed",
    "aborted": "aborted",
    "failed": "failed",
}


def new_id(kind: str) -> str:
    """A fresh id, such as `op-3f9c21d4a7b0`."""
    return f"{kind}-{secrets.token_hex(6)}"


class Record(msgspec.Struct, kw_only=True):
    """What is known of one operation; `detail` is the coordinator machine's own state, `engines` state by engine id."""

    operation: str
    instance: str
    generation: int
    requested_size: int
    active_size: int
    phase: Phase = "idle"
    detail: str = ""
    error: str = ""
    participants: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()
    engines: dict[str, str] = {}
    history: list[tuple[str, float]] = []


class Operation:
    """The handle of one operation: status, wait, cancel. `moved` is called by the coordinator only."""

    def __init__(self, record: Record, cancel: threading.Event | None = None) -> None:
        self.record = record
        self.cancelled = cancel or threading.Event()
        self._changed = threading.Condition()

    @property
    def id(self) -> str:
        """The operation id."""
        return self.record.operation

    @property
    def ended(self) -> bool:
        """Whether it has reached completed, failed or aborted."""
        return self.record.phase in ENDED

    def status(self) -> Record:
        """A snapshot of the record."""
        with self._changed:
            return msgspec.convert(msgspec.to_builtins(self.record), Record)

    def cancel(self) -> None:
        """Ask for an abort; the engines answer, so that the operation may still complete. Does not block."""
        self.cancelled.set()

    def wait(self, within: float) -> Record:
        """Block until the operation has ended and return its record; DeadlineExpired after `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended, within):
                raise DeadlineExpired(
                    f"operation {self.id} is {self.record.phase} ({self.record.detail}) after {within:g} s"
                )
        return self.status()

    def moved(self, detail: str, phase: Phase, now: float | None = None) -> None:
        """The coordinator's machine entered a state; an ended operation stays as it ended."""
        with self._changed:
            if self.ended:
                return
            self.record.detail, self.record.phase = detail, phase
            self.record.history.append((detail, time.monotonic() if now is None else now))
            self._changed.notify_all()

    def failed(self, text: str) -> None:
        """Keep the first reason that somebody gave."""
        with self._changed:
            self.record.error = self.record.error or text


class Operations:
    """All operations of one coordinator instance; `begin` may be called from any thread."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.current: Operation | None = None
        self.past: list[Operation] = []
        self._lock = threading.Lock()

    def begin(
        self, size: int, active_size: int, generation: int, operation: str = "", removing: tuple[str, ...] = ()
    ) -> tuple[Operation, bool]:
        """Return (handle, whether it is new): the running operation for the same request, a finished one for its id.

        OperationRunning for any other request while one runs, or for an id that was used for something else.
        """
        with self._lock:
            same = next((each for each in self._all() if operation and each.id == operation), None)
            running = self.current if self.current is not None and not self.current.ended else None
            found = same or running
            if found is not None:
                record = found.record
                wanted = (size, removing or record.removing, operation or record.operation)
                if wanted != (record.requested_size, record.removing, record.operation):
                    raise OperationRunning(
                        f"operation {record.operation} to size {record.requested_size} is {record.phase}; "
                        f"a request for size {size} can begin when it has ended"
                    )
                return found, False
            if self.current is not None:
                self.past.append(self.current)
            self.current = Operation(
                Record(
                    operation=operation or new_id("op"),
                    instance=self.instance,
                    generation=generation,
                    requested_size=size,
                    active_size=active_size,
                    removing=removing,
                )
            )
            return self.current, True

    def _all(self) -> list[Operation]:
        return [*self.past, *([self.current] if self.current is not None else [])]
