"""The record of operations: one is active at most, a repeated request joins it, and phases are said in known words."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from elasticfsm.errors import DeadlineExpired, OperationRunning, RequestRefused

Phase = Literal["idle", "preparing", "committing", "completed", "failed", "aborted"]
Cause = Literal["", "refused", "deadline", "cancelled", "drain", "failure", "died", "restart"]
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

log = logging.getLogger(__name__)


def new_id(kind: str) -> str:
    """A fresh id, such as `op-3f9c21d4a7b0`."""
    return f"{kind}-{secrets.token_hex(6)}"


class Conflict(RequestRefused):
    """The request is possible, but not now: a stale instance, or a cool-down; `retry_after` in seconds, if known."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Record(msgspec.Struct, kw_only=True):
    """What is known of one operation; on disk before each change of phase.

    `generation` is the one that it leads to, `members` are the engines before it in rank order. `active_size` engines
    serve, `available_size` of them live: a loss is never a shrink. `detail` is the coordinator machine's own state,
    `engines` the state of each participant by engine id. `cause` says of what kind the reason is that it did not
    complete. `safe_to_delete` names engines (never ranks) that no operation needs any more. Seconds everywhere;
    `history` has (detail, monotonic seconds), `started` and `ended` are wall time.
    """

    operation_id: str
    instance_id: str
    generation: int
    requested_size: int
    active_size: int
    available_size: int = 0
    members: tuple[str, ...] = ()
    engines_to_add: tuple[str, ...] = ()
    engines_to_remove: tuple[str, ...] = ()
    drain: bool = False
    prepare_timeout: float = 0.0
    commit_timeout: float = 0.0
    drain_timeout: float = 0.0
    phase: Phase = "idle"
    detail: str = ""
    error: str = ""
    cause: Cause = ""
    engines: dict[str, str] = {}
    safe_to_delete: tuple[str, ...] = ()
    history: list[tuple[str, float]] = []
    started: float = 0.0
    ended: float = 0.0

    @property
    def participants(self) -> tuple[str, ...]:
        """All engines that take part."""
        return (*self.members, *self.engines_to_add)

    @property
    def removing(self) -> tuple[str, ...]:
        """The engines that leave."""
        return self.engines_to_remove

    @property
    def direction(self) -> str:
        """`up`, `down` or `none`."""
        before = len(self.members) or self.active_size
        return "none" if self.requested_size == before else "up" if self.requested_size > before else "down"


Keep = Callable[[Record], None]


def nowhere(record: Record) -> None:
    """Where a record is kept that is kept nowhere."""


class Operation:
    """The handle of one operation: status, wait, cancel. `moved` is called by the coordinator only.

    `keep` puts a record on disk; a change of phase is published only after that.
    """

    def __init__(self, record: Record, keep: Keep = nowhere) -> None:
        self.record = record
        self.cancelled = threading.Event()
        self._keep = keep
        self._changed = threading.Condition(threading.RLock())

    @property
    def id(self) -> str:
        """The operation id."""
        return self.record.operation_id

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
        log.info("cancel", extra={"operation": self.id, "state": self.record.detail})

    def wait(self, within: float) -> Record:
        """Block until the operation has ended and return its record; DeadlineExpired after `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended, within):
                raise DeadlineExpired(
                    f"operation {self.id} is {self.record.phase} ({self.record.detail}) after {within:g} s"
                )
        return self.status()

    def moved(self, detail: str, phase: Phase, now: float | None = None) -> None:
        """The coordinator's machine entered a state: on disk first, then for all to see; an end stays as it is."""
        with self._changed:
            if self.ended:
                return
            record = msgspec.structs.replace(self.record, detail=detail, phase=phase)
            record.history = [*self.record.history, (detail, time.monotonic() if now is None else now)]
            if phase == "completed":  # whatever stood in the way did not
                record.error, record.cause = "", ""
            if phase in ENDED:
                record.ended = time.time()
                record.safe_to_delete = _safe(record)
            try:
                self._keep(record)
            except OSError as error:
                record.error = record.error or f"the record could not be written: {error}"
            self.record = record
            self._changed.notify_all()
        log.info("operation", extra={"operation": self.id, "state": detail, "phase": phase, "error": record.error})

    def keep(self) -> None:
        """Put the record as it stands on disk; OSError when the disk does not take it."""
        with self._changed:
            self._keep(self.record)

    def heard(self, engine: str, state: str) -> None:
        """Note where an engine stands."""
        with self._changed:
            self.record.engines = {**self.record.engines, engine: state}

    def sizes(self, active: int, available: int) -> None:
        """Note how many engines serve, and how many of them live."""
        with self._changed:
            self.record.active_size, self.record.available_size = active, available

    def failed(self, text: str, cause: Cause = "") -> None:
        """Keep the first reason that somebody gave."""
        with self._changed:
            self.record.error = self.record.error or text
            self.record.cause = self.record.cause or cause


def _safe(record: Record) -> tuple[str, ...]:
    """Whose processes nobody needs: those that left, and new ones of an operation that was undone."""
    gone = {"completed": record.engines_to_remove, "aborted": record.engines_to_add}
    return gone.get(record.phase, ())


class Operations:
    """All operations of one coordinator instance; `begin` may be called from any thread."""

    def __init__(self, instance: str, keep: Keep = nowhere, past: list[Record] | None = None) -> None:
        self.instance = instance
        self.current: Operation | None = None
        self.past: list[Operation] = [Operation(record) for record in past or []]
        self._keep = keep
        self._lock = threading.Lock()

    @property
    def running(self) -> Operation | None:
        """The operation that has not ended, if there is one."""
        current = self.current
        return current if current is not None and not current.ended else None

    @property
    def last_change(self) -> Operation | None:
        """The last operation that was more than a request for the size that was there."""
        return next((each for each in reversed(self._all()) if each.record.direction != "none"), None)

    def find(self, operation: str) -> Operation | None:
        """The operation of that id, also when it has ended."""
        return next((each for each in self._all() if each.id == operation), None)

    def begin(
        self,
        size: int,
        active_size: int,
        generation: int,
        operation: str = "",
        removing: tuple[str, ...] = (),
        drain: bool = False,
    ) -> tuple[Operation, bool]:
        """Return (handle, whether it is new): the running operation for the same request, a finished one for its id.

        OperationRunning for any other request while one runs, or for an id that was used for something else.
        """
        with self._lock:
            found = (self.find(operation) if operation else None) or self.running
            if found is not None:
                record = found.record
                wanted = (size, removing or record.engines_to_remove, operation or record.operation_id)
                asked = (record.requested_size, record.engines_to_remove, record.operation_id)
                if wanted != asked or (drain and not record.drain):
                    raise OperationRunning(
                        f"operation {record.operation_id} to size {record.requested_size} is {record.phase}; "
                        f"a request for size {size} can begin when it has ended"
                        if not found.ended
                        else f"operation {record.operation_id} was another request, to size {record.requested_size}, "
                        f"and is {record.phase}; give this one an id of its own"
                    )
                return found, False
            if self.current is not None:
                self.past.append(self.current)
            record = Record(
                operation_id=operation or new_id("op"),
                instance_id=self.instance,
                generation=generation,
                requested_size=size,
                active_size=active_size,
                available_size=active_size,
                engines_to_remove=removing,
                drain=drain,
                started=time.time(),
            )
            self.current = Operation(record, self._keep)
            return self.current, True

    def resume(self, record: Record) -> Operation:
        """Make an operation that another instance began the running one."""
        self.current = Operation(record, self._keep)
        return self.current

    def _all(self) -> list[Operation]:
        return [*self.past, *([self.current] if self.current is not None else [])]
