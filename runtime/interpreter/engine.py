"""Runs the machines of one engine: guards at the boundary, lists on their threads, votes with the forward step.

The rules are the spec's. Time, mail and hands come from outside: no sockets and no torch in here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elasticfsm.board import Board
from elasticfsm.compile import Program
from elasticfsm.errors import RequestRefused
from elasticfsm.machine import build
from elasticfsm.mailbox import Letter
from elasticfsm.mailroom import Mailroom
from elasticfsm.monitor import Monitor, Record
from elasticfsm.protocol import Step
from elasticfsm.seat import Cancel, Job, Result, Seat

from .adapters import Adapters
from .beginning import Beginning
from .lists import run_list
from .operation import Operation, OperationEnded
from .threads import Background, Walker

SERVING = "serving"
Ended = Callable[[Operation, str, str], None]


class Interpreter:
    """The machines of one engine. `start`, `turn` and `wait` belong to the main loop; any thread may begin and deliver.

    `base` brings the machines that live as long as the engine (serving, rebalance), `operations` those of one operation
    at a time. `post` hands a letter to the control plane and must not block. `environment` says for a message of the
    environment (`request`, `due`) whether it is there now. `ended` hears on the main loop of an operation that ended:
    operation, end, last error; `failed` of a list that failed, on its thread. `generation` and its `members` are those
    that the engine serves in at its start.
    """

    def __init__(
        self,
        engine: str,
        base: Program,
        operations: Mapping[str, Program],
        adapters: Mapping[str, object],
        post: Callable[[Letter], None],
        journal: Record,
        *,
        board: Board | None = None,
        monitor: Monitor | None = None,
        environment: Mapping[str, Callable[[], bool]] | None = None,
        ended: Ended = lambda operation, end, error: None,
        failed: Callable[[Job, Result], None] = lambda job, result: None,
        generation: int = 0,
        members: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.base = base
        self.operations = dict(operations)
        self.adapters = Adapters(adapters)
        self.board = board or Board()
        self.monitor = monitor
        self.mail = Mailroom(engine, post, self._find, self.board, journal)
        self.operation: Operation | None = None
        self.role = ""
        self.ends: dict[str, str] = {}
        self._journal = journal
        self._environment = dict(environment or {})
        self._ended = ended
        self._failed = failed
        self._clock = clock
        self._program = base
        self._failure: BaseException | None = None
        self._closed = False
        self._news = False
        self._inbox: deque[Letter] = deque()
        self._changed = threading.Condition(threading.RLock())
        (machines,) = base.roles.values()
        self.adapters.need(f"engine {engine}", (base.machines[name] for name in machines))
        self._seats = {name: self._seat(base, name, base.deadlines) for name in machines}
        self._beginning = Beginning(self.operations, 2 * max(base.deadlines.values(), default=0.0), clock)
        self._own: Seat | None = None
        self.generations = {"active": f":{generation}"}  # which generation each name means now, as OPERATION:NUMBER
        if monitor is not None:
            monitor.generations = self.generations
        self._prepare_board(generation)
        if members:
            journal.put("generation", "", of=self.generations["active"], members=list(members))
        self._background = Background(f"background {engine}", self._run, self._finished)
        self._walkers = [Walker(seat, self._changed, self._run) for seat in self._seats.values() if seat.threaded]
        for walker in self._walkers:
            walker.start()

    # -- from outside ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Lets the machines run that run on every engine of the first generation; on a new engine mail starts them."""
        (names,) = self.base.started.values()
        with self._changed:
            for name in names:
                self._seats[name].stand()

    def bootstrap(self, operation: Operation, steps: Sequence[Step]) -> None:
        """Makes the first generation by these steps on the calling thread; nobody serves yet, so nobody votes.

        Blocks as long as the steps do, and raises the error of the one that failed.
        """
        with self._changed:
            self.operation = operation
            self._name_standby(operation)
        job = Job("bootstrap", "first generation", tuple(steps), Cancel())
        try:
            result = self._run(job)
        finally:
            with self._changed:
                self.operation = None
                self._stamp()
        if result.error is not None:
            raise result.error

    def begin(self, protocol: str, role: str, operation: Operation) -> None:
        """Seats the machine of that role, absent; its `prepare` or `withdraw` is delivered afterwards.

        Raises `OperationEnded` for an id that has ended here, `RequestRefused` while another operation runs, and
        `ElasticError` when a step has no adapter; nothing has changed then. The same id again changes nothing.
        """
        program = self._known(protocol, role)
        name = program.roles[role][0]
        with self._changed:
            self._refuse(operation)
            if self.operation is not None:
                return
            self.adapters.need(f"engine {self.engine} as {role}", [program.machines[name]])
            self.operation, self.role, self._program = operation, role, program
            self._own = self._seat(program, name, {**program.deadlines, **operation.deadlines})
            self._name_standby(operation)
            self._beginning.begin()
            self._journal.put("operation.begin", name, protocol=protocol, role=role)

    def deliver(self, letter: Letter) -> None:
        """Puts a letter into the inbox; it is read at the next boundary. Never blocks for long."""
        with self._changed:
            self._inbox.append(letter)
            self.nudge()

    def nudge(self) -> None:
        """Ends a `wait`: something of the environment has changed."""
        with self._changed:
            self._news = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Blocks until there is news, a deadline passes, or `seconds` are over; returns whether there is news."""
        with self._changed:
            if not self._news and not self._closed:
                left = min([seconds, *(seat.left() for seat in self._all())])
                self._changed.wait(max(left, 0.0))
            return self._news

    def close(self, within: float = 5.0) -> list[str]:
        """Withdraws what runs and joins the threads; returns the names of those that did not stand in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        stuck = [] if self._background.close(within) else ["background"]
        return stuck + [walker.seat.name for walker in self._walkers if not walker.close(within)]

    # -- looking -----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether turns are still worth taking: not closed, and no failure that the spec has no answer to."""
        return not self._closed and self._failure is None

    def state_of(self, machine: str) -> str:
        """The state of a machine of this engine by qualified name; `absent` before its start and after its end."""
        seat = self._find(machine)
        return seat.state if seat is not None else "absent"

    def status(self) -> dict[str, str]:
        """The state of every machine of this engine."""
        return {seat.name: seat.state for seat in self._all()}

    def errors(self) -> dict[str, str]:
        """The text of the last failure of every machine that had one."""
        return {seat.name: seat.error for seat in self._all() if seat.error}

    def votes_cast(self) -> frozenset[str]:
        """The votes that this engine casts by where its machines stand."""
        return frozenset(vote for seat in self._all() if seat.at is not None for vote in seat.at.asked())

    def wants(self) -> bool:
        """Whether some machine of this engine waits for a vote."""
        return bool(self.votes_cast())

    # -- the main loop -----------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """One pass at the boundary; returns whether anything was done. Blocks as long as foreground lists do.

        Raises the error of a list that failed where the spec has no way out for it; the engine must end then.
        """
        did = self._settle()
        while (seat := self._next_foreground()) is not None:
            self._foreground(seat)
            did = True
            self._settle()
        serving = self._serving()
        if serving is not None and serving.pending() and not self._blocked(serving):
            self._foreground(serving)
            did = True
        return did

    def _settle(self) -> bool:
        """Reads the mail and takes guards until none is enabled; then tells of an operation that ended."""
        did = False
        with self._changed:
            self._news = False
            operation = self.operation.id if self.operation else ""
            while self._inbox:
                self.mail.sort(self._inbox.popleft(), self._program, operation, self.ends)
            while any([self._look(seat) for seat in self._movable()]):  # noqa: C419 - each of them moves
                did = True
            self._forget_ended()
            self._check()
            finished = self._close_operation()
        if finished is not None:
            self._ended(*finished)
        return did or finished is not None

    def _look(self, seat: Seat) -> bool:
        if seat is self._own and seat.at is None and self._beginning.waits(self._seats.values()):
            return False
        wanted = self.wants()
        if seat.look(wanted):
            return True
        at = seat.at
        for way in at.leave if at is not None else ():
            ask = self._environment.get(way.guard.name)
            if way.guard.kind == "received" and ask is not None and ask():
                seat.mail.put(Letter(way.guard.name, "environment", self.engine, seat.name))
                return seat.look(wanted)
        return False

    def _next_foreground(self) -> Seat | None:
        return next((seat for seat in self._movable() if seat.pending() and seat is not self._serving()), None)

    def _blocked(self, serving: Seat) -> bool:
        return any(seat.blocks() for seat in self._all() if seat is not serving)

    def _foreground(self, seat: Seat) -> None:
        job = seat.job
        if job is None:
            return
        result = self._run(job)
        with self._changed:
            seat.finish(job, result)
            if any(step.meaning.means == "agree" for step in job.steps):
                if result.outcome == "done":
                    self._agreed(seat, result)
                else:  # a broken step is told before any message or deadline is obeyed: its votes may have counted
                    seat.look(self.wants())

    def _agreed(self, serving: Seat, result: Result) -> None:
        """Applies what all members of the step agreed on, together with the end of the step, before any mail."""
        board = self.board
        self._journal.put(
            "agreed",
            serving.name,
            of=self.generations["active"],
            number=board.step,
            votes=sorted(result.agreed),
            cast=sorted(board.votes),
            answer=result.answer,
        )
        board.step += 1
        for wake, answer in self._program.waves.items():
            if answer == result.answer:
                self.mail.next_wave(wake, self._all())
        for seat in self._movable():
            seat.agree(result.agreed)
        serving.look(self.wants())

    def _run(self, job: Job) -> Result:
        result = run_list(job, self.adapters, self._journal, self.monitor, self._before, self._after)
        if result.outcome == "failed":
            self._failed(job, result)
        return result

    def _before(self, step: Step) -> None:
        if step.meaning.means == "agree":
            own = self._own.at.asked() if self._own is not None and self._own.at is not None else ()
            self.board.votes = self.votes_cast()
            self.board.wanted = bool(self.board.votes)
            self.board.operation = self.operation.id if own and self.operation else ""

    def _after(self, step: Step) -> None:
        if step.meaning.means == "rename":
            with self._changed:
                names = self.generations
                names["retired"], names["active"] = names.pop("active"), names.pop("standby", "")
                self._prepare_board(self.operation.generation if self.operation else self.board.generation + 1)

    def _prepare_board(self, generation: int) -> None:
        board = self.board
        programs = [self.base, *self.operations.values()]
        board.names = tuple(sorted({vote for program in programs for vote in program.votes}))
        board.generation, board.wave, board.step = generation, 0, 0
        self._stamp()

    # -- machines ----------------------------------------------------------------------------------------------

    def _seat(self, program: Program, name: str, deadlines: Mapping[str, float]) -> Seat:
        return Seat(build(program, name), deadlines, self._clock, self._journal, self._entered)

    def _all(self) -> list[Seat]:
        """Every machine, the operation's own first, serving last."""
        seats = [seat for seat in self._seats.values() if not seat.name.startswith(SERVING + ".")]
        serving = self._serving()
        return [*([self._own] if self._own else []), *seats, *([serving] if serving else [])]

    def _movable(self) -> list[Seat]:
        return [seat for seat in self._all() if not seat.threaded]

    def _serving(self) -> Seat | None:
        return next((seat for seat in self._seats.values() if seat.name.startswith(SERVING + ".")), None)

    def _find(self, machine: str) -> Seat | None:
        return next((seat for seat in self._all() if seat.name == machine), None)

    def _entered(self, seat: Seat) -> None:
        """A machine has entered a state: send what it sends, start what runs in the background."""
        if self.mail.send(seat, self._program, self.operation.id if self.operation else ""):
            self.nudge()
        at = seat.at
        if at is not None and at.thread == "background" and seat.job is not None and not seat.threaded:
            self._background.begin(seat.job)

    def _finished(self, job: Job, result: Result) -> None:
        """A list of the background thread has ended."""
        with self._changed:
            for seat in self._all():
                seat.finish(job, result)
            self.nudge()

    def _forget_ended(self) -> None:
        for seat in self._movable():
            if seat is not self._own and seat.machine.ended:
                seat.forget()

    def _check(self) -> None:
        """A failure that the spec has no way out for ends the engine; a walker past its deadline is withdrawn."""
        for seat in self._all():
            if seat.threaded and seat.job is not None and seat.expired():
                seat.job.cancel.set()
            if seat.unheard() and seat.result is not None and seat.result.error is not None:
                self._failure = seat.result.error
                self._journal.put("unhandled", seat.name, state=seat.state, error=seat.error)
                self._journal.flush()
                raise self._failure

    # -- operations --------------------------------------------------------------------------------------------

    def _known(self, protocol: str, role: str) -> Program:
        program = self.operations.get(protocol)
        if program is None or role not in program.roles:
            roles = ", ".join(f"{name}.{role}" for name, each in self.operations.items() for role in each.roles)
            raise RequestRefused(f"no operation `{protocol}` with a role `{role}` is known here; known: {roles}")
        return program

    def _refuse(self, operation: Operation) -> None:
        if operation.id in self.ends:
            raise OperationEnded(f"operation {operation.id} has ended on {self.engine}: {self.ends[operation.id]}")
        if self.operation is not None and self.operation.id != operation.id:
            raise RequestRefused(f"operation {self.operation.id} runs on {self.engine}; wait until it has ended")

    def _close_operation(self) -> tuple[Operation, str, str] | None:
        own, operation = self._own, self.operation
        if own is None or operation is None or not own.machine.ended:
            return None
        self._journal.put("operation.end", own.name, end=own.state)
        self.ends[operation.id] = own.state
        self.operation, self.role, self._own, self._program = None, "", None, self.base
        self._stamp()
        return operation, self.ends[operation.id], own.error

    def _name_standby(self, operation: Operation) -> None:
        """From here on the name `standby` means the generation that this operation leads to."""
        self._stamp()
        self.generations["standby"] = f"{operation.id}:{operation.generation}"
        self._journal.put("generation", "", of=self.generations["standby"], members=list(operation.members))

    def _stamp(self) -> None:
        journal: Any = self._journal
        journal.operation = self.operation.id if self.operation else ""
        journal.generation = self.board.generation
