"""A machine in its place: its mailbox, its clock, and the list of steps of the state in which it stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from elasticfsm.machine import ABSENT, FORGET, EngineMachine, Sight, agreeing, own_thread, select, start
from elasticfsm.mailbox import Mailbox, Population, nobody
from elasticfsm.monitor import Record
from elasticfsm.protocol import Leave, State, Step


class Cancel(threading.Event):
    """Set when a list of steps is withdrawn; a step that waits looks at it (or is woken by it) and returns at once."""


class Job(NamedTuple):
    """A list of steps of a machine in a state, and the withdrawal of exactly this list."""

    machine: str
    state: str
    steps: tuple[Step, ...]
    cancel: Cancel


class Result(NamedTuple):
    """How a list ended: `done`, `failed` or `cancelled`; the last answer, the full votes, the error and its step."""

    outcome: str
    answer: str = ""
    agreed: frozenset[str] = frozenset()
    error: BaseException | None = None
    step: str = ""


class Seat:
    """Moves one machine. Not thread-safe: whoever runs it holds a lock around every call.

    `entered(seat)` is called after each entry into a state, to send what it sends and to start its list.
    """

    def __init__(
        self,
        machine: EngineMachine,
        deadlines: Mapping[str, float],
        clock: Callable[[], float],
        journal: Record,
        entered: Callable[[Seat], None],
        population: Population = nobody,
    ) -> None:
        self.machine = machine
        self.name = machine.name
        self.mail = Mailbox(population)
        self.threaded = own_thread(machine.spec)
        self.job: Job | None = None  # the list of this state, until its result is in
        self.result: Result | None = None
        self.error = ""  # text of the last failure, for status and reports
        self._deadlines = deadlines
        self._clock = clock
        self._journal = journal
        self._entered = entered
        self._phase = ""
        self._since = clock()

    @property
    def state(self) -> str:
        """The state in which the machine stands."""
        return self.machine.state

    @property
    def at(self) -> State | None:
        """The spec of that state; None while absent."""
        return self.machine.at

    def stand(self, state: str = "") -> None:
        """Puts the machine into a state, by default where it stands on an engine that serves already."""
        self.machine.stand(state)
        self._enter("", "")

    def look(self, wanted: bool = False) -> bool:
        """Takes one way out if a guard is enabled; returns whether the machine moved."""
        at = self.at
        if at is None:
            message = start(self.machine.spec, self.mail)
            if message:
                self._receive(message)
                self._move(f"received_{message}", "")
            return bool(message)
        way = select(at, self.sight(wanted))
        if way is None:
            return False
        self._take(way)
        return True

    def agree(self, full: frozenset[str]) -> bool:
        """Takes the edge of a full vote, if the machine stands in front of one."""
        at = self.at
        way = agreeing(at, full) if at is not None else None
        if way is not None:
            self._take(way)
        return way is not None

    def forget(self) -> None:
        """From an end back to `absent`: it may be started again."""
        self.machine.fire(FORGET)

    def sight(self, wanted: bool = False) -> Sight:
        """What the guards of the present state see."""
        result = self.result
        return Sight(
            mail=self.mail,
            outcome=result.outcome if result else "",
            answer=result.answer if result else "",
            expired=self.expired(),
            wanted=wanted,
        )

    def left(self) -> float:
        """Seconds until the deadline of the phase; infinite when it has none."""
        at = self.at
        seconds = self._deadlines.get(at.within) if at is not None else None
        return float("inf") if seconds is None else self._since + seconds - self._clock()

    def expired(self) -> bool:
        """Whether the deadline of the phase has passed."""
        return self.left() <= 0

    def finish(self, job: Job, result: Result) -> None:
        """The list of the state has ended; the result of a list that was withdrawn is ignored."""
        if job is self.job:
            self.job = None
            self.result = result
            if result.error is not None:
                self.error = f"{result.step}: {result.error}"

    def pending(self) -> bool:
        """Whether the main loop has a list of this machine to run."""
        at = self.at
        return at is not None and at.thread == "foreground" and self.job is not None

    def blocks(self) -> bool:
        """Whether no forward step may begin while the machine stands here: a foreground state blocks until it is left.

        Until its list has ended would not be enough: a step that begins between the list and the way out meets peers
        that have left already and are in the next list.
        """
        at = self.at
        return at is not None and not at.end and (not at.serves or at.thread == "foreground")

    def unheard(self) -> bool:
        """Whether a list failed in a state that has no way out for that."""
        result, at = self.result, self.at
        if result is None or at is None or result.outcome == "done":
            return False
        return all(way.guard.kind != "failed" for way in at.leave)

    def _take(self, way: Leave) -> None:
        if way.guard.kind == "received":
            self._receive(way.guard.name)
        self._move(way.guard.trigger, str(way.guard))

    def _receive(self, message: str) -> None:
        letter = self.mail.take(message)
        if letter is not None:
            self._journal.put("receive", self.name, message=message, sender=letter.sender, source=letter.engine)

    def _move(self, trigger: str, guard: str) -> None:
        before = self.state
        if self.job is not None:
            self.job.cancel.set()
            self._journal.put("cancel", self.name, state=before)
        target = self.machine.fire(trigger)
        if before != ABSENT:
            self._journal.put("leave", self.name, state=before, guard=guard, to=target)
        self._enter(before, guard)

    def _enter(self, before: str, guard: str) -> None:
        at = self.at
        if at is None:
            return
        if at.phase != self._phase or guard == "expired" or before in ("", ABSENT):
            self._phase = at.phase
            self._since = self._clock()
        self.result = None
        self.job = Job(self.name, at.name, at.steps, Cancel()) if at.steps else None
        self._journal.put("enter", self.name, state=at.name, came=before)
        self._entered(self)
