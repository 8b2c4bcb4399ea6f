"""An engine process: its control thread, its core, and the main loop that both the core and the library live in."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Collection

import torch

from elasticfsm.errors import ElasticError, RequestRefused
from elasticfsm.journal import Journal
from elasticfsm.mailbox import Letter

from .. import wire
from ..control import Control, remove_socket_directory
from ..elastic import Elastic, Eplb, Shape
from ..experts.placement import Placement, PlacementWire
from ..faults.trigger import journal_for
from ..fingerprint import CODE
from ..interpreter import Operation
from ..transport import Mailbox, wake_address
from ..wakes import Wakes
from ..weights.choice import Transfers
from .adoption import Memory, Owner, here, world_size
from .cores import core_for
from .driven import DrivenCore
from .faults import experts_with, hide_nixl, swap_experts
from .joining import Joining, greet

IDLE_SECONDS = 0.5


class EngineProcess:
    """One engine from its hello to its end. `run` is the main loop; the control thread only fills `mail`."""

    def __init__(self, joining: Joining) -> None:
        self.joining = joining
        self.mail: queue.SimpleQueue[wire.Mail] = queue.SimpleQueue()
        self.ending = threading.Event()
        self.orphan = False
        self.role = "starting"
        self.instance = ""
        self.elastic: Elastic | None = None
        self.core: DrivenCore | None = None
        self.failed = ""
        self.leaving = False
        self._told_placement: Placement | None = None
        self._memory = Memory()
        self._owner = Owner(joining.parent, joining.keep)
        mailbox = Mailbox(joining.address, wake_address(joining.address, joining.engine), joining.engine)
        self.mailbox = mailbox
        self.wakes = Wakes(mailbox)
        self.control = Control(
            mailbox, self._receive, self._status, self._orphaned, 0 if joining.keep else joining.parent
        )

    # -- control thread ----------------------------------------------------------------------------------------

    def _receive(self, message: wire.Mail) -> None:
        if isinstance(message, wire.Exit):
            self.end()
        elif isinstance(message, wire.Dead):
            elastic = self.elastic
            if elastic is not None:
                elastic.dead(message.engine)
        else:
            self.mail.put(message)
            self._nudge()

    def _status(self) -> wire.Mail | None:
        elastic, core = self.elastic, self.core
        if self._owner.lost():
            self._orphaned()
        if elastic is None or core is None:
            return wire.Status(
                sender=self.joining.engine,
                instance=self.instance,
                role=self.role,
                states={},
                step=0,
                running=0,
                waiting=0,
            )
        running, waiting = core.counts()
        self.wakes.again(_moment(elastic))
        return wire.Status(
            sender=self.joining.engine,
            operation=self.joining.operation,
            generation=elastic.board.generation,
            instance=self.instance,
            role=self.role,
            states=elastic.machines.status(),
            step=core.steps,
            running=running,
            waiting=waiting,
            counters=elastic.counters() | core.gauges() | {"size": world_size(elastic)},
            placement=self._changed_placement(elastic),
        )

    def _changed_placement(self, elastic: Elastic) -> PlacementWire | None:
        """Rank 0 tells the coordinator the map of the experts, once for every change."""
        placement, active = elastic.experts.placement, elastic.groups.active
        if placement is self._told_placement or active is None or active.rank != 0 or placement is None:
            return None
        self._told_placement = placement
        return placement.to_wire()

    def _orphaned(self) -> None:
        self.orphan = True
        self._remove_sockets()
        self.end()

    def _remove_sockets(self) -> None:
        if not self.joining.keep:  # else the directory is not temporary
            remove_socket_directory(self.joining.address)

    def end(self) -> None:
        """Make the main loop end; from any thread or a signal handler."""
        self.ending.set()
        elastic = self.elastic
        if elastic is not None:
            elastic.groups.cancel()
        self._nudge()

    def asked_to_end(self) -> None:
        """SIGTERM: an engine that serves asks to be removed first; any other, or the second time, it ends."""
        serves = self.role not in ("starting", "waiting", "retired", "new")
        if self.leaving or not serves:
            self._told("it was told to end by a signal" if serves else "")
            return
        self.leaving = True
        print(f"engine {self.joining.engine}: asks to be removed; the next signal ends it", file=sys.stderr, flush=True)
        self._send(wire.Retire(within=self.joining.grace))

    def _told(self, failure: str) -> None:
        if failure and not self.ending.is_set():
            self._fail(failure)
        self.end()

    def _nudge(self) -> None:
        elastic = self.elastic
        if elastic is not None:
            elastic.machines.nudge()

    # -- main loop ---------------------------------------------------------------------------------------------

    def run(self) -> int:
        """From hello to end; returns the exit code."""
        self.control.start()
        try:
            settings = self._join()
            if settings is not None:
                self._build(settings)
                self._loop()
        except ElasticError as error:
            self._fail(str(error))
        finally:
            self._close()
        return 1 if self.failed else 0

    def _join(self) -> wire.Settings | None:
        """Say hello until welcomed; None when told to end, RequestRefused when turned away for good."""
        hello = wire.Hello(operation=self.joining.operation, pid=os.getpid(), wake=self.mailbox.address, code=CODE)
        welcome = greet(lambda: self._send(hello), self.mail, self.ending, self.joining.address)
        self.instance = welcome.instance if welcome is not None else ""
        return welcome.settings if welcome is not None else None

    def _build(self, settings: wire.Settings) -> None:
        torch.set_num_threads(1)
        me = self.joining.engine
        journal, trigger = journal_for(settings.faults, settings.journal, me, self.instance)
        self.mailbox.tap = trigger.tap if trigger is not None else None
        core, extra = core_for(settings, lambda text: self._say(journal, text), self._deliver, self._give_back)
        config = core.engine.config
        hide_nixl(settings.faults, me)
        transfers = Transfers(me, settings.transfer, lambda text: self._say(journal, text))
        self.core = core
        self.elastic = Elastic(
            me,
            core,
            Shape(config.num_hidden_layers, config.num_experts, settings.slots),
            transfers,
            self._post,
            journal,
            store=settings.store,
            ended=self._ended,
            said=self._failing,
            eplb=Eplb(
                settings.eplb,
                settings.eplb_interval,
                settings.expert_sums,
                settings.eplb_step_bytes,
                settings.policy,
            ),
            experts=experts_with(settings.faults, me),
            timescale=settings.timescale,
            **extra,
        )
        self.role = "waiting"

    def _loop(self) -> None:
        elastic = self._elastic()
        while not self.ending.is_set():
            self._intake()
            if not elastic.turn():
                elastic.wait(IDLE_SECONDS)
            if elastic.broken and self._over(elastic):
                self._fail(f"serving ended: {elastic.broken}")
                return

    def _over(self, elastic: Elastic) -> bool:
        """Whether broken serving is the end: not while an operation decides what follows, nor for who has left."""
        return elastic.machines.operation is None and self.role != "retired"

    def _intake(self) -> None:
        while True:
            try:
                message = self.mail.get_nowait()
            except queue.Empty:
                return
            self._act(message)

    def _act(self, message: wire.Mail) -> None:
        core, elastic = self._core(), self._elastic()
        match message:
            case wire.Submit():
                core.submit(message)
            case wire.Protocol() | wire.Wake():
                elastic.deliver(_letter(message))
            case wire.Peers():
                self.wakes.learn(message.wakes)
            case wire.Plan(protocol=""):
                self._bootstrap(message)
            case wire.Plan():
                self._plan(message)
            case wire.Adopt():
                self._adopt(message)
            case wire.Turned():
                self.leaving = False  # the next signal asks again
                print(f"engine {self.joining.engine}: stays: {message.reason}", file=sys.stderr, flush=True)

    def _adopt(self, message: wire.Adopt) -> None:
        """A new coordinator asks: what we are, and again what we had said; requests of the former router are void."""
        core, elastic = self._core(), self._elastic()
        lost = 0
        if message.instance != self.instance:
            lost = core.abandon()
            self.instance = elastic.journal.instance = message.instance
            elastic.journal.put("adopted", "", pid=message.pid, lost=lost)
            self._told_placement = None
            self._owner.adopted_by(message.pid)
        self._send(here(elastic, self.role, self.mailbox.address, lost))
        for said in self._memory.said():
            self._send(said)
        if self.leaving:
            self._send(wire.Retire(within=self.joining.grace))

    def _bootstrap(self, plan: wire.Plan) -> None:
        core, elastic = self._core(), self._elastic()
        elastic.bootstrap(plan, core.load)
        if "swap-experts" in core.settings.faults and plan.members[0] == self.joining.engine:
            swap_experts(core.engine.model)
        self.role = "active"
        self._send(wire.Booted(generation=plan.generation))

    def _plan(self, plan: wire.Plan) -> None:
        machines, known = self._elastic().machines, plan.operation
        if known in machines.ends or (machines.operation is not None and machines.operation.id == known):
            return  # a coordinator that was started anew repeats it
        try:
            self._elastic().begin(plan)
        except RequestRefused as refusal:
            self._send(wire.Failure(operation=plan.operation, text=str(refusal)))
            return
        self.role = plan.roles[self.joining.engine]

    def _failing(self, operation: Operation, text: str) -> None:
        """A step of the operation failed here; any thread that runs steps."""
        self._send(wire.Failure(operation=operation.id, text=f"{self.role}: {text}"))

    def _ended(self, operation: Operation, end: str, error: str) -> None:
        """An operation has ended here, told on the main loop."""
        core = self._core()
        leaves = self.role == "removing" and end == "done"
        if error:
            self._send(wire.Failure(operation=operation.id, text=f"{self.role}: {error}"))
        core.accepting = not leaves
        self.role = "retired" if leaves or (self.role == "new" and end != "done") else "active"
        if leaves and self.leaving:
            self.end()  # this is what it was asked for

    # -- out ---------------------------------------------------------------------------------------------------

    def _send(self, message: wire.Mail) -> None:
        """Stamp a message with this engine's name and send it to the coordinator."""
        import msgspec

        self.mailbox.send(msgspec.structs.replace(message, sender=self.joining.engine, instance=self.instance))

    def _post(self, letter: Letter, peers: Collection[str]) -> None:
        stamp = {"operation": letter.operation, "generation": letter.generation, "instance": self.instance}
        if not peers and letter.receiver.endswith(".coordinator"):
            said = wire.Protocol(name=letter.message, machine=letter.sender, receiver=letter.receiver, **stamp)  # type: ignore[arg-type]
            self._memory.note(said)
            self._send(said)
        if peers:
            wake = wire.Wake(
                name=letter.message,
                machine=letter.sender,
                receiver=letter.receiver,
                wave=letter.wave,
                sender=self.joining.engine,
                **stamp,  # type: ignore[arg-type]
            )
            self.wakes.send(peers, wake, _moment(self._elastic()))

    def _deliver(self, tokens: tuple[wire.Token, ...]) -> None:
        self._send(wire.Tokens(step=self._core().steps, tokens=tokens))

    def _give_back(self, requests: tuple[tuple[str, int, int, str], ...]) -> None:
        self._send(wire.Stopped(requests=requests))

    def _say(self, journal: Journal, text: str) -> None:
        journal.put("transfer", "", text=text)
        print(f"engine {self.joining.engine}: {text}", file=sys.stderr, flush=True)

    def _fail(self, text: str) -> None:
        self.failed = text
        print(f"engine {self.joining.engine}: {text}", file=sys.stderr, flush=True)
        if not self.orphan:
            self._send(wire.Failure(text=text, fatal=True))

    def _close(self) -> None:
        elastic = self.elastic
        if elastic is not None:
            left = elastic.close()
            if left:
                print(f"engine {self.joining.engine}: not freed: {', '.join(left)}", file=sys.stderr, flush=True)
        self.control.stop()
        if self.joining.parent and os.getppid() != self.joining.parent:
            self._remove_sockets()  # its owner is gone and cannot do it

    # -- inside ------------------------------------------------------------------------------------------------

    def _core(self) -> DrivenCore:
        if self.core is None:
            raise RequestRefused("the engine was not welcomed yet")
        return self.core

    def _elastic(self) -> Elastic:
        if self.elastic is None:
            raise RequestRefused("the engine was not welcomed yet")
        return self.elastic


def _moment(elastic: Elastic) -> tuple[int, int, int]:
    board = elastic.board
    return board.generation, board.wave, board.step


def _letter(message: wire.Protocol | wire.Wake) -> Letter:
    return Letter(
        message.name,
        message.machine,
        message.sender,
        message.receiver,
        message.operation,
        message.generation,
        message.wave,
    )


def run_engine(joining: Joining) -> int:
    """The whole life of an engine process; returns its exit code. Main thread only: it blocks and awaits signals."""
    ends = {signal.SIGTERM} if joining.parent else {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before any thread is started: all inherit it
    if joining.parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = EngineProcess(joining)
    threading.Thread(target=_end_on, args=(ends, process), name="signals", daemon=True).start()
    return process.run()


def _end_on(ends: set[signal.Signals], process: EngineProcess) -> None:
    """Wait for signals in a thread: a handler on the main loop must not take the locks that the loop may hold."""
    while True:
        if signal.sigwait(ends) == signal.SIGTERM:
            process.asked_to_end()
        else:
            process.end()
