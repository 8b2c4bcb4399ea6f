"""An engine of the world: its machines, its mail and its threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from elasticfsm.board import Board
from elasticfsm.errors import GroupError
from elasticfsm.machine import build, select, start
from elasticfsm.mailbox import Letter
from elasticfsm.mailroom import Mailroom
from elasticfsm.seat import Job, Result, Seat
from elasticfsm.testing.boss import OPERATION, Unread
from elasticfsm.testing.ground import Meeting, Violated
from elasticfsm.testing.thread import Thread

if TYPE_CHECKING:
    from elasticfsm.testing.world import World

SERVING = "serving.engine"
REBALANCE = "rebalance.main"
INTERVAL = 25  # steps after which a rebalance is due on the other engines, too

Choose = Callable[[list[str]], str]


class Player:
    """One engine: its seats, and the lists that its threads (`main`, `background`, one per own-thread machine) run."""

    def __init__(self, world: World, engine: str, role: str, old: bool, choose: Choose) -> None:
        program = world.program
        self.world, self.engine, self.role, self.old, self.choose = world, engine, role, old, choose
        self.requests = 0
        self.due = False
        self.ended = ""
        self.started = False
        self.board = Board()
        self.threads: dict[str, Thread] = {}
        self.queue: list[Job] = []
        self.posted: dict[str, Meeting] = {}
        self.seats = {
            name: Seat(build(program, name), {}, lambda: 0.0, Unread(), self._entered) for name in program.roles[role]
        }
        self.own = self.seats[program.roles[role][0]]
        self.room = Mailroom(engine, lambda letter: world.post(engine, letter), self.seats.get, self.board, Unread())
        holds = self.holds() if old else ()
        world.ground.join(engine, ":0" if old else "", holds)

    def start(self) -> None:
        """Puts the machines where they stand on an engine that serves already."""
        for name in self.world.program.started[self.role]:
            self.seats[name].stand()

    def holds(self) -> tuple[str, ...]:
        """What the machines hold that run before an operation begins."""
        machines = self.world.program.machines
        return tuple(fact for name in machines if name in self.seats for fact in machines[name].holds)

    def state_of(self, machine: str) -> str:
        """The state of a machine."""
        return self.seats[machine].state

    # -- what may happen ---------------------------------------------------------------------------------------

    def actions(self) -> list[str]:
        """What this engine can do now."""
        found = [
            f"{name} goes on" for name, thread in self.threads.items() if thread.job.cancel.is_set() or thread.ready()
        ]
        found += [f"{name} fails" for name, thread in self.threads.items() if thread.stuck()]
        if self.queue and "background" not in self.threads:
            found.append("background begins")
        for name, seat in self.seats.items():
            free = seat.threaded or "main" not in self.threads
            if free and self._would_move(seat):
                found.append(f"{name} looks")
            elif free and self._may_begin(seat):
                found.append(f"{name} begins")
        return found

    def act(self, what: str) -> None:
        """Does one of them."""
        name, verb = what.split(" ", 1)
        if verb == "looks":
            self._look(self.seats[name])
        elif verb == "begins" and name == "background":
            self._begin(name, self.queue.pop(0))
        elif verb == "begins":
            seat = self.seats[name]
            if seat.job is not None:
                self._begin(name if seat.threaded else "main", seat.job)
        else:
            self._go(name, fail=verb == "fails")

    def hears(self, source: str, letter: Letter) -> bool:
        """Whether a letter to a machine of this name is meant for this engine: a wake goes to members of the group."""
        ground = self.world.ground
        if letter.receiver not in self.seats:
            return False
        if letter.message not in self.world.program.waves:
            return True
        identity = ground.names[source].get("active", "")
        return self.engine in ground.members.get(identity, ())

    def deliver(self, letter: Letter) -> None:
        """A letter arrives in the control thread."""
        if letter.operation == OPERATION and self.ended:
            self.room.dropped["ended"] += 1
        else:
            self.room.sort(letter, self.world.program, OPERATION, ())

    def check(self) -> None:
        """Facts that a machine holds must be true in every state as long as it lives."""
        for seat in self.seats.values():
            if seat.at is None or seat.at.end:
                continue
            for fact in seat.machine.spec.holds:
                if not self.world.ground.holds(self.engine, fact):
                    raise Violated(
                        "contracts", f"{self.engine}: {seat.name} in {seat.state} but `{fact}` does not hold"
                    )

    def waits_alone(self) -> bool:
        """Whether a rebalance is due here; the others learn of it when their own counters get there."""
        return REBALANCE in self.seats and self.state_of(REBALANCE) == "counting"

    def switched(self) -> None:
        """The engine uses the new generation from now on."""
        self.board.generation, self.board.wave, self.board.step = 1, 0, 0

    # -- machines ----------------------------------------------------------------------------------------------

    def _would_move(self, seat: Seat) -> bool:
        at = seat.at
        if at is None:
            return bool(start(seat.machine.spec, seat.mail)) and not (seat is self.own and self.ended)
        if at.end:
            return seat is not self.own
        return select(at, seat.sight(self._wanted())) is not None or bool(self._environment(seat))

    def _may_begin(self, seat: Seat) -> bool:
        if seat.threaded:
            return seat.job is not None and seat.name not in self.threads
        return seat.pending() and not self._blocked(seat)

    def _look(self, seat: Seat) -> None:
        if seat.machine.ended:
            return seat.forget()
        if not seat.look(self._wanted()):
            message = self._environment(seat)
            self.due = self.due and message != "due"
            seat.mail.put(Letter(message, "environment", self.engine, seat.name))
            seat.look(self._wanted())
        return None

    def _environment(self, seat: Seat) -> str:
        here = {"request": self.requests > 0, "due": self.due}
        ways = seat.at.leave if seat.at is not None else ()
        return next((way.guard.name for way in ways if way.guard.kind == "received" and here.get(way.guard.name)), "")

    def _wanted(self) -> bool:
        return bool(self.votes())

    def votes(self) -> frozenset[str]:
        """What the engine casts."""
        return frozenset(vote for seat in self.seats.values() if seat.at is not None for vote in seat.at.asked())

    def _blocked(self, seat: Seat) -> bool:
        return seat.name == SERVING and any(other.blocks() for other in self.seats.values() if other is not seat)

    def _entered(self, seat: Seat) -> None:
        self.room.send(seat, self.world.program, OPERATION)
        at = seat.at
        if at is not None and (seat.name, at.name) == (REBALANCE, "planning"):
            self.due = False  # its counter starts again
        if seat is self.own and at is not None:
            self.started = True
            if at.end:
                self.ended = at.name
        if at is not None and at.thread == "background" and seat.job is not None and not seat.threaded:
            self.queue.append(seat.job)

    # -- threads -----------------------------------------------------------------------------------------------

    def _begin(self, name: str, job: Job) -> None:
        self.threads[name] = Thread(self, job)
        self._go(name)

    def _go(self, name: str, fail: bool = False) -> None:
        thread = self.threads[name]
        if thread.job.cancel.is_set() or fail:
            self.world.ground.close(self.engine, thread.group)
            thread.result = Result("failed" if fail else "cancelled", error=GroupError(str(thread.meeting)))
        elif thread.go():
            return
        del self.threads[name]
        self._finished(thread)

    def _finished(self, thread: Thread) -> None:
        for seat in self.seats.values():
            seat.finish(thread.job, thread.result)
        serving = self.seats[SERVING]
        if thread.result.agreed or thread.job.machine == SERVING:
            self._agreed(thread.result, serving)

    def _agreed(self, result: Result, serving: Seat) -> None:
        if result.outcome != "done":
            return
        self.board.step += 1
        if self.board.step % INTERVAL == 0:  # whoever waits for a rebalance alone waits until it is due on the others
            self.due = self.due or any(player.waits_alone() for player in self.world.players.values())
        for wake, answer in self.world.program.waves.items():
            if answer == result.answer:
                self.room.next_wave(wake, list(self.seats.values()))
        for seat in self.seats.values():
            if not seat.threaded:
                seat.agree(result.agreed)
        serving.look(self._wanted())

    def __str__(self) -> str:
        states = ", ".join(f"{name} {seat.state}" for name, seat in self.seats.items())
        waits = "; ".join(f"{name} in {thread.meeting or thread.job.state}" for name, thread in self.threads.items())
        return f"{states} | {waits or 'no list runs'}"
