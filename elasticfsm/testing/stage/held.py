"""Seats that move only when they are told to: what the machine would do by itself, and what it is told, are compared.

A seat of an interpreter looks at its guards whenever the main loop turns. Held, it looks when it is granted a guard,
and takes that one if it is enabled, also where the interpreter would have preferred another one (`overruled`).
"""

from __future__ import annotations

from collections.abc import Callable

from elasticfsm.machine import Sight, _enabled, select, start
from elasticfsm.protocol import Leave, State
from elasticfsm.seat import Job, Result, Seat


class Held:
    """One seat; `granted` is the guard that it may take next, `sender` the engine whose letter it takes."""

    def __init__(self, seat: Seat, clock: Callable[[], float], tell: Callable[[], None]) -> None:
        self.seat = seat
        self.granted = ""
        self.sender = ""
        self.may_begin = False
        self.overruled = 0
        self.skew = 0.0
        self._look = seat.look
        self._pending = seat.pending
        self._finish = seat.finish
        self._clock = clock
        self._tell = tell
        for name, method in {
            "look": self.look,
            "pending": self.pending,
            "finish": self.finish,
            "_clock": self.now,
        }.items():
            setattr(seat, name, method)

    def now(self) -> float:
        """The clock of this seat."""
        return self._clock() + self.skew

    def look(self, wanted: bool = False) -> bool:
        """In place of the seat's own: takes the granted guard if it is enabled."""
        if not self.granted:
            return False
        moved = self._start() if self.seat.at is None else self._leave(self.seat.at, wanted)
        if moved:
            self.granted = ""
        return moved

    def pending(self) -> bool:
        """In place of the seat's own: whether its foreground list is to run now."""
        return self.may_begin and self._pending()

    def finish(self, job: Job, result: Result) -> None:
        """In place of the seat's own: the same, and whoever waits for it hears of it."""
        self._finish(job, result)
        self._tell()

    def would_begin(self) -> bool:
        """Whether its foreground list waits for the main loop."""
        return self._pending()

    def way(self, wanted: bool) -> str:
        """The guard that it would take by itself; empty if it would stay."""
        seat = self.seat
        if seat.at is None:
            message = start(seat.machine.spec, seat.mail)
            return f"received {message}" if message else ""
        found = select(seat.at, seat.sight(wanted))
        return str(found.guard) if found is not None else ""

    def expire(self) -> None:
        """The deadline of its phase passes, on its own clock only."""
        left = self.seat.left()
        self.skew += max(left, 0.0) if left != float("inf") else 0.0

    def _start(self) -> bool:
        seat, message = self.seat, self.granted.removeprefix("received ")
        first = start(seat.machine.spec, seat.mail)
        if first != message:
            if not seat.mail.any(message):
                return False
            self._to_front(message)
            self.overruled += 1
        return self._look()

    def _leave(self, at: State, wanted: bool) -> bool:
        way = next((way for way in at.leave if str(way.guard) == self.granted), None)
        sight = self.seat.sight(wanted)
        if way is None or not _enabled(at, way.guard, sight):
            return False
        if way.guard.kind == "received":
            self._to_front(way.guard.name)
        if self._same(at, way, sight):
            return self._look(wanted)
        self.overruled += 1
        self.seat._take(way)
        return True

    def _same(self, at: State, way: Leave, sight: Sight) -> bool:
        chosen = select(at, sight)
        return chosen is not None and chosen.guard == way.guard

    def _to_front(self, message: str) -> None:
        """The letter that is to be taken counts as the oldest one of its message."""
        letters = self.seat.mail._letters
        for key in list(letters):
            if key[0] == message and self.sender in ("", key[2]):
                moved = {key: letters.pop(key), **letters}
                letters.clear()
                letters.update(moved)
                return
