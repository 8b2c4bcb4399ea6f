"""Who stands on a stage: the coordinator and the engines, each the real object of the runtime with its real threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from elasticfsm.board import Board
from elasticfsm.compile import Program
from elasticfsm.mailbox import Letter
from elasticfsm.monitor import Monitor
from elasticfsm.seat import Seat
from elasticfsm.testing.stage.act import COORDINATOR, Act
from elasticfsm.testing.stage.gates import Gates, Standing
from elasticfsm.testing.stage.held import Held
from elasticfsm.testing.stage.laws import NEW, OLD
from elasticfsm.testing.stage.performer import Performer

if TYPE_CHECKING:
    from elasticfsm.testing.stage.stage import Stage

OPERATION = "op"
Heard = Callable[[str, dict[str, Any]], None]
At = Callable[[Seat], "Standing | None"]


class Record:
    """A journal in memory: what one actor has noted; `heard` is told of each event."""

    def __init__(self, who: str, heard: Heard, clock: Callable[[], int]) -> None:
        self.events: list[dict[str, Any]] = []
        self._clock = clock
        self._who = who
        self._heard = heard
        self.operation = ""
        self.generation = 0

    def put(self, event: str, machine: str = "", /, **fields: object) -> None:
        """Notes an event."""
        head = {"t": self._clock(), "engine": self._who, "operation": self.operation, "generation": self.generation}
        self.events.append({**head, "event": event, "machine": machine, **fields})
        self._heard(self._who, self.events[-1])

    def note(self, event: str, machine: str, fields: Mapping[str, object], /) -> None:
        """Notes an event."""
        self.put(event, machine, **fields)

    def flush(self) -> None:
        """Everything is there already."""


class Main:
    """A thread that does what it is asked to, one call at a time; `error` is what the last one raised."""

    def __init__(self, name: str, gates: Gates) -> None:
        self.idle = True
        self.error: BaseException | None = None
        self._gates = gates
        self._call: Callable[[], object] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def ask(self, call: Callable[[], object] | None) -> None:
        """Begins a call; `None` ends the thread."""
        self.idle = False
        self._call = call
        self._ready.set()

    def join(self, within: float) -> None:
        """Ends the thread."""
        self.ask(None)
        self._thread.join(within)

    def _work(self) -> None:
        while True:
            self._ready.wait()
            self._ready.clear()
            if self._call is None:
                return
            try:
                self._call()
            except Exception as error:  # the stage looks at it: the main loop of an engine has ended so
                self.error = error
            self.idle = True
            self._gates.tell()


class Engine:
    """An engine: a real interpreter with its threads, whose seats are held."""

    def __init__(self, stage: Stage, name: str, role: str, founder: bool) -> None:
        from elasticfsm.runtime.interpreter import Interpreter, Operation

        program = stage.program
        self.name, self.role, self.founder = name, role, founder
        self.stage = stage
        self.present = founder or not stage.launches
        self.alive = True
        self.runs: Seat | None = None  # whose foreground list the main loop runs
        self.own = ""  # the machine of the operation
        self.asked = ""  # the message of the environment that is there now
        self.due = False
        self.board, self.journal = Board(), Record(name, stage.heard, stage.nanoseconds)
        self.monitor = Monitor(name, self.journal, clock=stage.nanoseconds)
        self.performer = Performer(name, stage.laws, stage.gates, self.board, self.monitor)
        self.performer.busy = self._others_work
        self.performer.owner = lambda cancel: next(
            (s.name for s in self.seats() if s.job and s.job.cancel is cancel), ""
        )
        self.main = Main(f"main {name}", stage.gates)
        self.interpreter = Interpreter(
            name,
            stage.base,
            {program.name: program} if program.coordinator else {},
            self.performer.adapters(program.steps, stage.vocabularies),
            lambda letter: stage.network.post(name, letter),
            self.journal,
            board=self.board,
            monitor=self.monitor,
            ended=lambda operation, end, error: None if end in ("done", "aborted") else stage.laws.leave(name),
            environment={message: self._environment(message) for message in stage.environment},
            generation=0,
            members=stage.laws.members[OLD] if founder else (),
            clock=stage.clock,
        )
        steps = (seat for seat in self.interpreter._seats.values() if _agrees(seat))
        if self.interpreter._serving() is None and (stepping := next(steps, None)) is not None:
            vars(self.interpreter)["_serving"] = lambda: stepping  # another protocol may call it otherwise
        self.held = {seat.name: Held(seat, stage.clock, stage.gates.tell) for seat in self.interpreter._seats.values()}
        if founder:
            self.interpreter.start()
        if program.coordinator:
            members = stage.laws.members[NEW]
            self.interpreter.begin(program.name, role, Operation(OPERATION, 1, members, stage.deadlines))
            own = self.interpreter._own
            if own is not None:
                self.own = own.name
                self.held = {own.name: Held(own, stage.clock, stage.gates.tell), **self.held}

    @property
    def wanted(self) -> bool:
        """Whether some machine waits for a vote."""
        return self.interpreter.wants()

    def sort(self) -> None:
        """Letters that have arrived are put into the mailboxes, as at the begin of a pass of the main loop.

        Not inside a list: a wake of the next wave must not meet one of the wave that ends with this step.
        """
        if not self.main.idle:
            return
        one = self.interpreter
        operation = one.operation.id if one.operation else ""
        with one._changed:
            while one._inbox:
                one.mail.sort(one._inbox.popleft(), one._program, operation, one.ends)

    def outside(self, seat: Seat) -> str:
        """The guard of a message from the environment that is there."""
        there = {"request": self.performer.requests > 0, "due": self.due}
        ways = seat.at.leave if seat.at is not None else ()
        found = (w.guard for w in ways if w.guard.kind == "received" and w.guard.name in self.stage.environment)
        return next((str(guard) for guard in found if there.get(guard.name)), "")

    def seats(self) -> list[Seat]:
        """The seats of its machines, its own first."""
        return [held.seat for held in self.held.values()]

    def blocked(self, seat: Seat) -> bool:
        """Whether a list must not begin because another machine holds the forward steps up."""
        return seat is self.interpreter._serving() and self.interpreter._blocked(seat)

    def look(self, held: Held, act: Act) -> None:
        """The machine looks at its guards: in its own thread, or in a pass of the main loop."""
        if held.seat.threaded:
            with self.interpreter._changed:
                held.look(self.wanted)
                self.interpreter._changed.notify_all()
            return
        self.asked = act.what.removeprefix("received ")
        self.runs = held.seat
        self.main.ask(self.interpreter.turn)
        self.stage.gates.until(lambda: self.main.idle, str(act))
        self.asked = ""

    def quiet(self, at: At) -> bool:
        """Whether every thread that has something to do stands at a gate."""
        if any(cancel.is_set() for cancel in list(self.performer.inside)):
            return False
        if not self.main.idle and (self.runs is None or at(self.runs) is None):
            return False
        return all(self._stands(seat, at) for seat in self.seats())

    def _stands(self, seat: Seat, at: At) -> bool:
        spec = seat.at
        if seat.threaded and seat.machine.ended:
            return False  # it is about to forget
        return seat.job is None or at(seat) is not None or (spec is not None and spec.thread == "foreground")

    def ended(self) -> str:
        """How the operation has ended here; empty while it has not."""
        return self.interpreter.ends.get(OPERATION, "")

    def last_words(self) -> list[Letter]:
        """What it said to the coordinator when it ended; it is said again when a coordinator asks again."""
        program = self.stage.program
        end = program.machines[self.own].states[self.ended()]
        return [Letter(word, self.own, self.name, program.coordinator, OPERATION, 1) for word in end.sends]

    def began(self) -> bool:
        """Whether the operation has begun here and has not ended."""
        return bool(self.own) and self.interpreter.state_of(self.own) != "absent"

    def deliver(self, letter: Letter) -> None:
        """A letter arrives in the control thread."""
        self.interpreter.deliver(letter)

    def inbox(self) -> list[Letter]:
        """What has arrived and was not taken."""
        boxes = [letter for seat in self.seats() for letter in seat.mail._letters.values()]
        return [*self.interpreter._inbox, *boxes]

    def close(self) -> None:
        """Ends its threads."""
        self.interpreter.close(0)
        for seat in self.seats():
            if seat.job is not None:
                seat.job.cancel.set()
        self.stage.wake()
        self.main.join(5)
        self.interpreter.close(5)

    def _environment(self, message: str) -> Callable[[], bool]:
        def there() -> bool:
            return self.asked == message

        return there

    def _others_work(self, cancel: object) -> bool:
        """Whether another thread of the engine is inside a list."""
        return any(
            seat.job is not None and seat.job.cancel is not cancel and seat.at is not None
            for seat in self.seats()
            if seat.at is not None and seat.at.thread == "background"
        )


class Boss:
    """The coordinator: a real conductor in a thread, whose seat is held."""

    def __init__(self, stage: Stage, engines: dict[str, list[str]]) -> None:
        from elasticfsm.runtime.interpreter import Conductor, Operation

        program = stage.program
        self.stage = stage
        self.name = COORDINATOR
        self.journal = Record(COORDINATOR, stage.heard, stage.nanoseconds)
        self.alive = True
        self.performer = Performer(COORDINATOR, stage.laws, stage.gates, Board())
        self.performer.launch = stage.launch
        self.performer.owner = lambda cancel: program.coordinator
        self.main = Main("main coordinator", stage.gates)
        self.conductor = Conductor(
            program,
            Operation(OPERATION, 1, stage.laws.members[NEW], stage.deadlines),
            engines,
            self.performer.adapters(program.steps, stage.vocabularies),
            lambda letter: stage.network.post(COORDINATOR, letter),
            self.journal,
            stage.clock,
        )
        self.held = {self.conductor._seat.name: Held(self.conductor._seat, stage.clock, stage.gates.tell)}

    wanted = False

    @property
    def seat(self) -> Seat:
        """Its seat."""
        return self.conductor._seat

    def sort(self) -> None:
        """Letters that have arrived are put into the mailbox."""
        with self.conductor._changed:
            while self.conductor._inbox:
                self.conductor._sort(self.conductor._inbox.popleft())

    def outside(self, seat: Seat) -> str:
        """What the environment sends to it; the operator speaks for himself."""
        return ""

    def look(self, held: Held, act: Act) -> None:
        """The machine looks at its guards; its next list begins."""
        if act.what == "received cancel":
            self.conductor.cancel()
        self.main.ask(self.conductor.turn)

    def quiet(self, at: At) -> bool:
        """Whether its thread stands at a gate, or has nothing to do."""
        return self.main.idle or at(self.seat) is not None

    def deliver(self, letter: Letter) -> None:
        """A letter arrives."""
        self.conductor.deliver(letter)

    def inbox(self) -> list[Letter]:
        """What has arrived and was not taken."""
        return [*self.conductor._inbox, *self.seat.mail._letters.values()]

    def close(self) -> None:
        """Ends its thread."""
        if self.seat.job is not None:
            self.seat.job.cancel.set()
        self.stage.wake()
        self.main.join(5)


def _agrees(seat: Seat) -> bool:
    """Whether a machine takes the forward steps that end in an agreement."""
    steps = (step for state in seat.machine.spec.states.values() for step in state.steps)
    return any(step.meaning.means == "agree" for step in steps)


def base_of(program: Program) -> Program:
    """What runs in every engine beside the machine of the operation, as a program of one role."""
    if not program.coordinator:
        return program
    inside = {name: None for names in program.roles.values() for name in names[1:]}
    started = {name: None for names in program.started.values() for name in names if name in inside}
    return msgspec.structs.replace(
        program,
        name="base",
        machines={name: program.machines[name] for name in inside},
        roles={"engine": tuple(inside)},
        started={"engine": tuple(started)},
        groups={"active": ("engine",)},
    )
