"""Runs the coordinator's machine of one operation: steps inline, fan-in over the engines of each role."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from elasticfsm.compile import Program
from elasticfsm.machine import build
from elasticfsm.mailbox import Letter
from elasticfsm.monitor import Record
from elasticfsm.seat import Seat

from .adapters import Adapters
from .lists import run_list
from .operation import Operation


class Conductor:
    """The coordinator of one operation. `turn` belongs to one thread; `deliver`, `died` and `cancel` to any.

    `engines` names the engine ids of each role, the new ones included: they count as alive from their launch on.
    `post` hands a letter to the control plane, which carries it to every engine of the receiving role.
    """

    def __init__(
        self,
        program: Program,
        operation: Operation,
        engines: Mapping[str, Collection[str]],
        adapters: Mapping[str, object],
        post: Callable[[Letter], None],
        journal: Record,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.program = program
        self.operation = operation
        self.engines = {role: tuple(ids) for role, ids in engines.items()}
        self.dropped: Counter[str] = Counter()
        self._adapters = Adapters(adapters)
        self._adapters.need(f"the coordinator of {program.name}", [program.machines[program.coordinator]])
        self._journal = journal
        self._post = post
        self._gone: set[str] = set()
        self._launched: set[str] = set()
        self._launches = self._launchable()
        self._inbox: deque[Letter] = deque()
        self._changed = threading.Condition()
        deadlines = {**program.deadlines, **operation.deadlines}
        machine = build(program, program.coordinator)
        self._seat = Seat(machine, deadlines, clock, journal, self._entered, self._population)

    @property
    def state(self) -> str:
        """The state of the coordinator's machine."""
        return self._seat.state

    @property
    def phase(self) -> str:
        """The phase of that state; empty before the start and in an end."""
        at = self._seat.at
        return at.phase if at is not None else ""

    @property
    def ended(self) -> bool:
        """Whether the operation has ended here."""
        return self._seat.machine.ended

    @property
    def error(self) -> str:
        """The text of the last failure of a step."""
        return self._seat.error

    def begin(self) -> None:
        """The operator asked for the operation: the machine starts at the next turn."""
        self._say("operation.begin")
        (message,) = self._seat.machine.spec.starts
        self.deliver(self._letter(message, "operator", "operator"))

    def resume(self, state: str, launched: Collection[str], gone: Collection[str]) -> None:
        """The coordinator was started anew: its machine stands in `state`; these engines were launched, these are gone.

        Letters may have been delivered before. To be called once, instead of `begin`, before the first turn.
        """
        self._say("operation.resume")
        self._launched.update(launched)
        self._gone.update(gone)
        self._seat.stand(state)

    def _say(self, event: str) -> None:
        journal: Any = self._journal
        journal.operation = self.operation.id
        engines = {role: list(ids) for role, ids in self.engines.items()}
        self._journal.put(
            event, self.program.coordinator, protocol=self.program.name, role="coordinator", engines=engines
        )

    def cancel(self) -> None:
        """The operator wants the operation undone; whether that is still possible the engines decide."""
        self.deliver(self._letter("cancel", "operator", "operator"))

    def died(self, engine: str) -> None:
        """The watchdog says that an engine is gone: `lost` in its name if the protocol has that, else `died`."""
        for role, ids in self.engines.items():
            if engine in ids:
                self._gone.add(engine)
                machine = f"{self.program.name}.{role}"
                message = "lost" if self.program.routes_from(machine, "lost") else "died"
                self.deliver(self._letter(message, machine, engine))

    def deliver(self, letter: Letter) -> None:
        """Puts a letter into the inbox; never blocks for long."""
        with self._changed:
            self._inbox.append(letter)
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Blocks until a letter came, the deadline of the phase passed, or `seconds` are over."""
        with self._changed:
            if not self._inbox:
                self._changed.wait(max(min(seconds, self._seat.left()), 0.0))

    def minds(self, message: str) -> bool:
        """Whether this message of any engine leads out of the present state."""
        at = self._seat.at
        return at is not None and any(way.guard.kind == "any" and way.guard.name == message for way in at.leave)

    def waits_for(self) -> dict[str, list[str]]:
        """What the present state waits for, as message -> engines that have not sent it."""
        at = self._seat.at
        guards = [way.guard for way in at.leave if way.guard.kind in ("all", "all alive")] if at is not None else []
        return {guard.name: self._seat.mail.missing(guard.name, guard.kind == "all alive") for guard in guards}

    def turn(self) -> bool:
        """Reads the mail, takes guards and runs steps until nothing is left to do; returns whether anything was done.

        Raises the error of a step that failed in a state without a way out for that.
        """
        did = False
        while not self.ended:
            with self._changed:
                while self._inbox:
                    self._sort(self._inbox.popleft())
            if not self._seat.look() and not self._work():
                break
            did = True
        return did

    def _work(self) -> bool:
        job = self._seat.job
        if job is None:
            return False
        for step in job.steps:
            if step.meaning.means == "launch":
                self._launched.update(self.engines.get(step.argument, ()))
        self._seat.finish(job, run_list(job, self._adapters, self._journal))
        if self._seat.unheard() and self._seat.result is not None and self._seat.result.error is not None:
            self._journal.put("unhandled", self._seat.name, state=self.state, error=self.error)
            self._journal.flush()
            raise self._seat.result.error
        return True

    def _sort(self, letter: Letter) -> None:
        if letter.operation != self.operation.id:
            self.dropped["operation"] += 1
            self._journal.put(
                "letter.dropped", letter.receiver, message=letter.message, why="operation", of=letter.operation
            )
            return
        self._journal.put("arrived", self._seat.name, message=letter.message, source=letter.engine)
        self._seat.mail.put(letter)

    def _entered(self, seat: Seat) -> None:
        at = seat.at
        for message in at.sends if at is not None else ():
            for route in self.program.routes_from(seat.name, message):
                self._journal.put("send", seat.name, message=message, receiver=route.receiver)
                self._post(self._letter(message, seat.name, "coordinator", route.receiver))
        if at is not None and at.end:
            self._journal.put("operation.end", seat.name, end=at.name)
            self._journal.flush()

    def _letter(self, message: str, sender: str, engine: str, receiver: str = "") -> Letter:
        receiver = receiver or self.program.coordinator
        return Letter(message, sender, engine, receiver, self.operation.id, self.operation.generation)

    def _population(self, message: str, alive: bool) -> list[tuple[str, str]]:
        senders = self.program.senders(self.program.coordinator, message)
        members = [(sender, engine) for sender in senders for engine in self.engines.get(sender.partition(".")[2], ())]
        return [who for who in members if not alive or self._lives(who)]

    def _lives(self, who: tuple[str, str]) -> bool:
        machine, engine = who
        launched = machine.partition(".")[2] not in self._launches or engine in self._launched
        return launched and engine not in self._gone

    def _launchable(self) -> set[str]:
        """The roles whose engines do not run before a step launches them."""
        spec = self.program.machines[self.program.coordinator]
        steps = (step for state in spec.states.values() for step in state.steps)
        return {step.argument for step in steps if step.meaning.means == "launch"}
