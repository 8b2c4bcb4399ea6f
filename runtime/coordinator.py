"""The coordinator of one operation: runs the spec's coordinator machine in a thread and gives it hands.

It decides nothing that the machine does not decide. What it knows of sizes, roles and ranks is fixed when it begins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

import msgspec

from elasticfsm.compile import program
from elasticfsm.errors import ElasticError, RequestRefused
from elasticfsm.journal import Journal, JournalFull
from elasticfsm.mailbox import Letter

from . import wire
from .changes import Change, Sizes, state_after_restart
from .interpreter import Conductor
from .interpreter import Operation as Course
from .launch import Launcher
from .operation import WORDS, Operation
from .roster import Roster
from .router import Router
from .transport import remove_socket, wake_address

_LOOK = 0.2  # seconds between two looks at a cancellation

log = logging.getLogger(__name__)


class DrainExpired(ElasticError):
    """Requests of leaving engines did not end in time; nothing was changed."""


class Coordinator:
    """One operation from `begin` (or `resume`) to its end. Any thread may call `deliver`, `died` and `cancel`."""

    def __init__(
        self,
        operation: Operation,
        change: Change,
        sizes: Sizes,
        store: str,
        *,
        roster: Roster,
        launcher: Launcher | None,
        router: Router,
        address: str,
        journal: Journal,
        deadlines: Mapping[str, float],
        committed: Callable[[Change], None],
        keep_retired: bool = False,
    ) -> None:
        self.operation = operation
        self.change = change
        self._sizes = sizes
        self._store = store
        self._roster = roster
        self._launcher = launcher
        self._router = router
        self._address = address
        self._journal = journal
        self._deadlines = dict(deadlines)
        self._committed = committed
        self._keep_retired = keep_retired
        self._planned: set[str] = set()
        self._cancel_sent = False
        self._detail = ""
        self._waited: dict[str, list[str]] = {}
        program_ = program(change.protocol)
        roles = change.roles
        engines = {role: [e for e, r in roles.items() if r == role] for role in program_.roles}
        course = Course(operation.id, operation.record.generation, change.members, deadlines)
        hands = {"placement": self, "journal": self, "engines": _Engines(self), "router": _Routing(self)}
        self._engines = engines
        self._conductor = Conductor(program_, course, engines, hands, self._post, journal)
        self._thread = threading.Thread(target=self._run, name=f"coordinator {operation.id}", daemon=True)

    # -- from outside ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the machine."""
        self._conductor.begin()
        self._thread.start()

    def resume(self, launched: Collection[str], gone: Collection[str]) -> None:
        """Go on with an operation of a former coordinator; what engines repeated stands in the inbox already."""
        state = state_after_restart(self._conductor.program, self.operation.record.detail)
        self.operation.failed("its coordinator was started anew", "restart") if state == "asking" else None
        log.warning("resumed", extra={"operation": self.operation.id, "state": state})
        self._conductor.resume(state, launched, gone)
        self._thread.start()

    def deliver(self, letter: Letter) -> None:
        """A message of the spec came from an engine."""
        self.operation.heard(letter.engine, letter.message)
        self._conductor.deliver(letter)

    def died(self, engine: str, reason: str) -> None:
        """An engine is declared dead; nothing if it has no part in the operation."""
        if engine not in self.change.roles:
            return
        self.operation.failed(f"engine {engine}: {reason}", "died")
        self.operation.heard(engine, "dead")
        self._count()
        self._conductor.died(engine)

    def spares(self, engine: str) -> bool:
        """Whether the operation goes on although this engine died: it was leaving, and nothing of it is needed."""
        leaving = engine in self.change.removing and not self.operation.ended
        return (
            leaving and self._conductor.phase not in ("", "preparing", "aborting") and not self._conductor.minds("died")
        )

    def join(self, within: float) -> None:
        """Wait for the thread."""
        if self._thread.ident is not None:
            self._thread.join(within)

    # -- hands of the machine ----------------------------------------------------------------------------------

    def check(self) -> str:
        """Step placement.check: whether the engines of the new size have room for the experts."""
        try:
            self._sizes.check(len(self.change.members))
        except RequestRefused as refusal:
            self.operation.failed(str(refusal), "refused")
            return "impossible"
        return "fits"

    def write(self) -> None:
        """Step journal.write: the record as it stands, on disk before the next phase begins."""
        self._moved()
        try:
            self.operation.keep()
        except OSError as error:
            raise JournalFull(f"the record of {self.operation.id} was not written: {error.strerror}") from error
        record: dict[str, object] = msgspec.to_builtins(self.operation.status())
        self._journal.put(
            "record", self._conductor.program.coordinator, state=self._conductor.state, **_renamed(record)
        )
        self._journal.sync()

    # -- inside ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        conductor, operation = self._conductor, self.operation
        try:
            while not conductor.ended:
                self._waited = conductor.waits_for()
                conductor.turn()
                self._moved()
                if operation.cancelled.is_set() and not self._cancel_sent:
                    self._cancel_sent = True
                    operation.failed("cancelled by the operator", "cancelled")
                    conductor.cancel()
                elif not conductor.ended:
                    conductor.wait(_LOOK)
            self._explain()
            operation.moved(conductor.state, WORDS[conductor.state])
        except ElasticError as error:
            operation.failed(str(error))
            operation.moved("failed", "failed")
        except Exception as error:
            operation.failed(f"{type(error).__name__}: {error}")
            operation.moved("failed", "failed")
            raise

    def _moved(self) -> None:
        state = self._conductor.state
        if state != self._detail and not self._conductor.ended:
            self._detail = state
            self._expiry(state)
            self._count()
            self.operation.moved(state, WORDS.get(self._conductor.phase, "preparing"))

    def _explain(self) -> None:
        """An operation that failed says why: the first reason given, or else who said `failed`, and when."""
        if self._conductor.error:
            self.operation.failed(self._conductor.error, "failure")
        said = sorted(engine for engine, message in self.operation.record.engines.items() if message == "failed")
        if self._conductor.state == "failed" and said:
            self.operation.failed(f"engine {', '.join(said)} reported a failure in {self._detail or 'planning'}")
        if self._conductor.state == "aborted":  # nobody gave a reason: engines withdraw by themselves at a deadline
            self.operation.failed("engines withdrew because a deadline passed", "deadline")

    def _post(self, letter: Letter) -> None:
        """Carry a message to every engine of the receiving role; an engine gets its plan before its first one."""
        self.entered()
        for engine in self._engines.get(letter.receiver.partition(".")[2], ()):
            if letter.message == "end" and self._absent(engine):
                continue
            if engine not in self._planned:
                self._planned.add(engine)
                self._roster.send(engine, self._plan())
            self._roster.send(
                engine,
                wire.Protocol(
                    operation=letter.operation,
                    generation=letter.generation,
                    instance=self.operation.record.instance_id,
                    sender=wire.COORDINATOR,
                    name=letter.message,
                    machine=letter.sender,
                    receiver=letter.receiver,
                ),
            )

    def _absent(self, engine: str) -> bool:
        """Whether an engine that shall end has not even come; it never will, and nobody waits for its answer."""
        member = self._roster.get(engine)
        if member is None:  # the launch failed before it was expected
            self._conductor.died(engine)
            return True
        if member.here or not self._roster.bury(engine, "told to end before it announced itself"):
            return False
        if self._launcher is not None:
            self._launcher.kill(engine)
        self._conductor.died(engine)
        return True

    def entered(self) -> None:
        """The machine entered a state: the new generation serves from `completing` on."""
        self._moved()
        if self._conductor.phase == "completing":
            self.commit()

    def commit(self) -> None:
        """The new generation is the one that serves; idempotent."""
        self._committed(self.change)
        self._count()

    def _expiry(self, state: str) -> None:
        """Whoever asks without a reason given before asks because a deadline passed."""
        if state == "asking" and not self.operation.record.error:
            missing = {message: names for message, names in self._waited.items() if names}
            text = "; ".join(f"{', '.join(names)} did not say `{message}`" for message, names in missing.items())
            self.operation.failed(f"a deadline passed: {text or 'nobody is known to be late'}", "deadline")

    def _count(self) -> None:
        record = self.operation.record
        committed = self._conductor.phase == "completing" or self._conductor.state == "done"
        serving = self.change.members if committed else self.change.previous
        self.operation.sizes(len(serving), sum(self._roster.lives((engine,)) for engine in serving))
        if record.engines.keys() != self.change.roles.keys():
            for engine in self.change.roles.keys() - record.engines.keys():
                self.operation.heard(engine, "waiting")

    def _plan(self) -> wire.Plan:
        return wire.Plan(
            operation=self.operation.id,
            generation=self.operation.record.generation,
            instance=self.operation.record.instance_id,
            sender=wire.COORDINATOR,
            protocol=self.change.protocol,
            members=self.change.members,
            previous=self.change.previous,
            roles=self.change.roles,
            store=self._store,
            deadlines=self._deadlines,
        )

    def launch(self, role: str) -> None:
        """Step engines.launch: start the processes of a role, or expect those that somebody else starts."""
        engines = self._engines[role]
        self._roster.expect(engines, self.operation.id)
        for engine in engines if self._launcher is not None else ():
            self._launcher.start(engine, self._address, self.operation.id)  # type: ignore[union-attr]

    def stop(self, role: str) -> None:
        """Step engines.stop: end the processes of a role; blocks until they are gone."""
        engines = [engine for engine in self._engines[role] if not self._stays(engine, role)]
        self._roster.retire(set(self._engines[role]) - set(engines))
        for engine in engines:
            self._roster.send(engine, wire.Exit(sender=wire.COORDINATOR, operation=self.operation.id))
        self._roster.stop(engines)
        if self._launcher is not None:
            self._launcher.stop(engines)
        for engine in engines:  # also of one that was killed before it could say where it is
            member = self._roster.get(engine)
            remove_socket((member.wake if member is not None else "") or wake_address(self._address, engine))

    def _stays(self, engine: str, role: str) -> bool:
        """Whether an engine that left stays up: its process is not ours to end, or that was asked for."""
        owned = self._launcher is not None and self._launcher.pid(engine) is not None
        return role == "removing" and (self._keep_retired or not owned)

    def admit(self, role: str) -> None:
        """Step router.admit."""
        if role == "new":
            self.commit()
        self._router.admit(self._engines[role])

    def retire(self, role: str) -> None:
        """Step router.retire; if that was asked for, what they run is finished first (else it is handed over later)."""
        self._router.retire(self._engines[role])
        if self.operation.record.drain:
            self._drain(set(self._engines[role]))

    def _drain(self, engines: set[str]) -> None:
        limit = time.monotonic() + self.operation.record.drain_timeout
        while (load := self._router.load()).keys() & engines and not self.operation.cancelled.wait(_LOOK / 4):
            if time.monotonic() > limit:
                left = sum(load.get(engine, 0) for engine in engines)
                within = self.operation.record.drain_timeout
                text = f"{left} requests of {', '.join(sorted(engines))} did not end within {within:g} s"
                self.operation.failed(f"drain timeout: {text}; nothing was changed", "drain")
                raise DrainExpired(text)


class _Engines:
    """Steps `engines.*`."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.launch = coordinator.launch
        self.stop = coordinator.stop


class _Routing:
    """Steps `router.*`."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.admit = coordinator.admit
        self.retire = coordinator.retire


def _renamed(record: Mapping[str, object]) -> dict[str, object]:
    """The record's fields under names that an event does not use for itself."""
    taken = ("engine", "instance", "operation", "generation", "machine", "event", "t", "wall", "state")
    return {(f"record_{name}" if name in taken else name): value for name, value in record.items()}
