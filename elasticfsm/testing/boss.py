"""The coordinator of the world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from elasticfsm.machine import build, select, start
from elasticfsm.mailbox import Letter
from elasticfsm.seat import Result, Seat

if TYPE_CHECKING:
    from elasticfsm.testing.player import Choose
    from elasticfsm.testing.world import World

OPERATION = "op"


class Unread:
    """A journal that nobody reads."""

    def put(self, event: str, machine: str = "", /, **fields: object) -> None:
        """Forget it."""

    def note(self, event: str, machine: str, fields: Mapping[str, object], /) -> None:
        """Forget it."""

    def flush(self) -> None:
        """Nothing to write."""


class Boss:
    """The coordinator of the operation."""

    def __init__(self, world: World, choose: Choose) -> None:
        self.world = world
        self.choose = choose
        self.launched: set[str] = set()
        machine = build(world.program, world.program.coordinator)
        self.seat = Seat(machine, {}, lambda: 0.0, Unread(), self._entered, self._population)

    def letter(self, message: str, sender: str, receiver: str = "") -> Letter:
        """A letter of the operation."""
        return Letter(message, sender, "coordinator", receiver or self.seat.name, OPERATION, 1)

    def deliver(self, letter: Letter) -> None:
        """A letter arrives."""
        self.seat.mail.put(letter)

    def actions(self) -> list[str]:
        """What it can do now."""
        seat = self.seat
        if seat.machine.ended:
            return []
        moves = select(seat.at, seat.sight()) is not None if seat.at is not None else bool(self._starts())
        return (["looks"] if moves else []) + (["works"] if seat.job is not None else [])

    def act(self, what: str) -> None:
        """Does one of them."""
        seat = self.seat
        if what == "looks":
            seat.look()
        elif seat.job is not None:
            answer = ""
            for step in seat.job.steps:
                if step.meaning.means == "launch":
                    self.launched |= {e for e, role in self.world.roles.items() if role == step.argument}
                answer = self.choose(step.meaning.answers) if step.meaning.answers else answer
            seat.finish(seat.job, Result("done", answer))

    def _starts(self) -> str:
        return start(self.seat.machine.spec, self.seat.mail)

    def _entered(self, seat: Seat) -> None:
        for message in seat.at.sends if seat.at is not None else ():
            for route in self.world.program.routes_from(seat.name, message):
                self.world.post("coordinator", self.letter(message, seat.name, route.receiver))

    def _population(self, message: str, alive: bool) -> list[tuple[str, str]]:
        program = self.world.program
        senders = {sender.partition(".")[2]: sender for sender in program.senders(self.seat.name, message)}
        found = [(senders[role], engine) for engine, role in self.world.roles.items() if role in senders]
        launches = any(
            step.meaning.means == "launch" for state in self.seat.machine.spec.states.values() for step in state.steps
        )
        new = {e for e in self.world.roles if launches and not self.world.players[e].old}
        return [who for who in found if not alive or who[1] not in new or who[1] in self.launched]
