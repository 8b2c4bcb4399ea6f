"""Letters of one engine: those inside it go straight into a mailbox, the others out through the control plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from elasticfsm.board import Board
from elasticfsm.compile import Program, Route
from elasticfsm.mailbox import Letter
from elasticfsm.monitor import Record
from elasticfsm.seat import Seat


class Mailroom:
    """Sends, sorts, drops and counts. Not thread-safe: whoever runs the machines holds a lock around every call.

    `operation` is the id of the running one, `ended` are those that have ended here; letters of any other are dropped.
    """

    def __init__(
        self,
        engine: str,
        post: Callable[[Letter], None],
        find: Callable[[str], Seat | None],
        board: Board,
        journal: Record,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._engine = engine
        self._post = post
        self._find = find
        self._board = board
        self._journal = journal

    def send(self, seat: Seat, program: Program, operation: str) -> bool:
        """Sends what the state sends that the machine has entered; returns whether something stayed inside."""
        at = seat.at
        routes = [route for message in at.sends for route in program.routes_from(seat.name, message)] if at else []
        return any([self._route(route, program, operation) for route in routes])  # noqa: C419 - all of them go out

    def sort(self, letter: Letter, program: Program, operation: str, ended: Collection[str]) -> None:
        """Puts a letter from outside into its mailbox, or drops and counts it."""
        if letter.message in program.waves:
            if letter.age < (self._board.generation, self._board.wave):
                return self._drop(letter, letter.message)
        elif letter.operation != operation:
            return self._drop(letter, "ended" if letter.operation in ended else "operation")
        receiver = self._find(letter.receiver)
        if receiver is None:
            return self._drop(letter, "receiver")
        receiver.mail.put(letter)
        return None

    def next_wave(self, wake: str, seats: list[Seat]) -> None:
        """The wave has ended for all members: its wakes are void, here and on their way."""
        self._board.wave += 1
        for seat in seats:
            self.dropped[wake] += seat.mail.drop(wake, (self._board.generation, self._board.wave))

    def _route(self, route: Route, program: Program, operation: str) -> bool:
        board = self._board
        letter = Letter(
            message=route.message,
            sender=route.sender,
            engine=self._engine,
            receiver=route.receiver,
            operation="" if route.message in program.waves else operation,
            generation=board.generation,
            wave=board.wave,
        )
        receiver = self._find(route.receiver) if route.local else None
        if route.local and receiver is None:
            return False
        self._journal.put("send", route.sender, message=route.message, receiver=route.receiver)
        if receiver is not None:
            receiver.mail.put(letter)
        else:
            self._post(letter)
        return receiver is not None

    def _drop(self, letter: Letter, kind: str) -> None:
        self.dropped[kind] += 1
        self._journal.put(
            "letter.dropped",
            letter.receiver,
            message=letter.message,
            why=kind,
            source=letter.engine,
            of=letter.operation,
        )
