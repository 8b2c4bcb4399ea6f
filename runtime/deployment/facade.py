"""A deployment: engines, their coordinator and the router, in the process that starts it. This is what a user calls.

with Deployment.start(model, size=2) as deployment:
    stream = deployment.submit(tokens, 100)
    deployment.scale(4).wait(120)
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from elasticfsm.errors import DeadlineExpired, EngineDied, RequestRefused
from elasticfsm.journal import Journal

from .. import gpus, wire
from ..changes import Change, Sizes
from ..coordinator import Coordinator
from ..engine.config import ModelConfig
from ..engine.generated import open_checkpoint
from ..experts import audit
from ..experts.placement import Placement
from ..experts.policy.removal import choose_leaving
from ..launch import Launcher
from ..ledger import Ledger, Standing
from ..naming import refuse_id
from ..operation import Operation, Operations, new_id
from ..options import Options, Status, default_slots
from ..roster import Roster
from ..router import Router, Stream
from ..store import StoreServer
from ..transport import Hub, SocketDirectory
from .counts import Counts
from .deaths import conclude, watch
from .intake import receive
from .retirement import Retirements, dismiss
from .scaling import Wanted, begin
from .takeover import refuse_survivors, standing_of, take_over

POLL = 0.1  # seconds between two looks at processes and heartbeats
START_SECONDS = 120.0

log = logging.getLogger(__name__)


class Deployment:
    """Use `start`; `close` (or leaving the `with` block) ends every process and removes every socket and file."""

    launchers: ClassVar[type[Launcher]] = Launcher
    journals_as: ClassVar[type[Journal]] = Journal

    def __init__(self, model: Path | str, size: int, options: Options, standing: Standing | None = None) -> None:
        self.config = ModelConfig.read(model)
        checkpoint = open_checkpoint(model, self.config)  # a truncated file is refused here, before anything starts
        self._sums = audit.sums_of_model(checkpoint, self.config) if options.verify_experts else ()
        self.model = Path(model).resolve()
        slots = options.slots or default_slots(self.config.num_experts, size)
        self.options = msgspec.structs.replace(options, slots=slots)
        self.sizes = Sizes(self.config.num_experts, slots, options.largest)
        self.sizes.check(size)
        self.instance = new_id("run")
        self.members: tuple[str, ...] = standing.members if standing is not None else ()
        self.generation = standing.generation if standing is not None else 0
        self.failed = ""
        self.deaths: dict[str, str] = {}  # engine -> reason, in order
        self.start_seconds = 0.0  # how long the first engines took to serve; 0 while unknown, as after a takeover
        self.counts = Counts()
        self.samples, self.moved = self.counts.samples, self.counts.moved
        self.violations, self.counters = self.counts.violations, self.counts.counters
        self.router = Router(self._submit)
        self.retirements = Retirements()
        self._booted: set[str] = set()
        self._coordinator: Coordinator | None = None
        self._thread: threading.Thread | None = None
        self._kept: Standing | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._stack = contextlib.ExitStack()
        try:
            self._open(standing)
        except BaseException:
            self.close()
            raise

    @classmethod
    def start(
        cls, model: Path | str, size: int, options: Options | None = None, begun: Callable[[], None] = lambda: None
    ) -> Self:
        """Start `size` engines and wait until they serve; RequestRefused, ModelError or EngineDied when they cannot.

        `begun` is called when nothing is left to refuse, before the first engine is started.
        """
        deployment = cls(model, size, options or Options())
        try:
            operation, engines = deployment._founders(size)
            begun()
            deployment._listen()
            deployment._bootstrap(operation, engines)
        except BaseException:
            deployment.close()
            raise
        return deployment

    @classmethod
    def resume(cls, directory: Path | str, begun: Callable[[], None] = lambda: None) -> Self:
        """Take over the engines of a coordinator that is gone, and decide the operation that it left behind.

        Blocks until every engine has said what it is, or is known to be dead. RequestRefused when there is nothing to
        take over, or the other coordinator still lives. `begun` is called when nothing is left to refuse.
        """
        return take_over(cls, Path(directory), begun)

    def _open(self, standing: Standing | None) -> None:
        options = self.options
        directory = Path(options.directory) if options.directory else self._own_directory()
        self.ledger = Ledger(directory)
        if options.keep:
            self.ledger.hold()
            self._stack.callback(self.ledger.close)
            if standing is None:
                refuse_survivors(self.ledger)
        self.operations = Operations(self.instance, self.ledger.write, self.ledger.past() if options.keep else [])
        self.journals = Path(options.journal or (standing.journal if standing is not None else directory / "journal"))
        self.journals.mkdir(parents=True, exist_ok=True)
        self._journal = self.journals_as(self.journals, wire.COORDINATOR, self.instance)
        self._stack.callback(self._journal.close)
        self._store = StoreServer()
        self._stack.callback(self._store.close)
        address = standing.address if standing is not None else options.address
        self._hub = Hub(address or f"ipc://{directory}/hub.sock")
        self.address = self._hub.address
        self._stack.callback(self._stop_thread)
        self.roster = Roster(self._hub.send)
        self._launcher = self.launchers(self.journals, seats=gpus.seats() if options.device == "cuda" else None)
        self._launcher.keep = options.keep
        self._stack.callback(self._launcher.close)
        self._stack.callback(self._end_engines)  # first of all: the hub's thread must still carry it

    def _listen(self) -> None:
        """From here on engines are heard."""
        self._thread = threading.Thread(target=self._serve, name="hub", daemon=True)
        self._thread.start()

    def _end_engines(self) -> None:
        for member in self.roster.living():  # also those that somebody else started
            self.roster.send(member.engine, wire.Exit(sender=wire.COORDINATOR, instance=self.instance))

    def _own_directory(self) -> Path:
        return self._stack.enter_context(contextlib.closing(SocketDirectory())).path

    @property
    def placement(self) -> Placement | None:
        """The map of the experts, as rank 0 said last."""
        return self.counts.placement

    # -- what a user does --------------------------------------------------------------------------------------

    def submit(self, prompt: Iterable[int], max_new_tokens: int, stop_tokens: Iterable[int] = ()) -> Stream:
        """Send a request; RequestRefused when it is empty, or the deployment has ended."""
        return self.router.submit(prompt, max_new_tokens, stop_tokens)

    def scale(
        self,
        size: int,
        remove: Iterable[str] = (),
        operation: str = "",
        launch: bool | None = None,
        *,
        drain: bool = False,
        add: Iterable[str] = (),
        timeouts: Mapping[str, float] | None = None,
        expected_instance: str = "",
        urgent: bool = False,
    ) -> Operation:
        """Begin to grow or shrink to `size` engines; returns the handle at once.

        With `launch` off (default: as the options say) somebody else starts the new engines: those that the record
        adds, each with `--join ADDRESS --operation ID --engine-id`; `add` may name them. `drain`: requests of leaving
        engines are finished instead of handed over. `timeouts`: seconds for `prepare`, `commit` and `drain`.
        `urgent`: no cool-down.

        RequestRefused for an impossible size, OperationRunning while another one runs, Conflict for another instance
        or in the cool-down; nothing was changed then. The same request again joins the running operation, or returns
        the ended one of its id. The same size is completed at once.
        """
        wanted = Wanted(
            size=size,
            remove=tuple(remove),
            add=tuple(add),
            operation=operation,
            launch=launch,
            drain=drain,
            timeouts=dict(timeouts or {}),
            expected_instance=expected_instance,
            urgent=urgent,
        )
        with self._changed:
            return begin(self, wanted)

    def retire(self, engine: str, within: float = 60.0) -> None:
        """Remove an engine, now or as soon as no other operation runs; does not block."""
        self.retirements.ask(engine, within)

    def dismiss(self, engine: str) -> bool:
        """Tell a retired engine to end; False when it is not retired."""
        return dismiss(self, engine)

    def leaving(self, size: int) -> tuple[str, ...]:
        """Who leaves when the deployment shrinks to `size` and the operator names nobody: who orphans fewest experts.

        Among equals, and before the placement is known, the highest ranks. Empty when it does not shrink.
        """
        members, placement = self.members, self.placement
        if placement is None or placement.world_size != len(members):
            return members[size:]
        return tuple(members[rank] for rank in choose_leaving(placement, max(0, len(members) - size)))

    def status(self) -> Status:
        """One look at everything."""
        living = self.roster.living()
        current = self.operations.current
        return Status(
            instance=self.instance,
            generation=self.generation,
            members=self.members,
            admitted=self.router.admitted,
            engines={each.engine: each.status for each in living if each.status is not None},
            pids={each.engine: each.pid for each in living if each.pid},
            operation=current.status() if current is not None else None,
            failed=self.failed,
            dropped=dict(self.router.dropped) | self._hub.dropped,
        )

    def close(self) -> None:
        """End every engine and free everything; idempotent. Open requests fail."""
        if self._closed:
            return
        self._closed = True
        self.router.close("the deployment was closed")
        self._stack.callback(self._forget_standing)
        self._stack.close()

    def _forget_standing(self) -> None:
        if self.options.keep and self._kept is not None:
            self.ledger.forget_standing()
            for socket in self.ledger.directory.glob("*.sock"):
                socket.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _await_answers(self, engines: Iterable[str], within: float) -> list[str]:
        """Wait until each of these engines has said what it is, or is dead; returns those that did not."""

        def silent() -> list[str]:
            known = {engine: self.roster.get(engine) for engine in engines}
            return [engine for engine, each in known.items() if each is None or not (each.here or each.dead)]

        with self._changed:
            self._changed.wait_for(lambda: not silent(), within)
            return silent()

    def _answered(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _founders(self, size: int) -> tuple[str, tuple[str, ...]]:
        """The ids of the first operation and its engines; RequestRefused for what cannot be one."""
        operation = self.options.boot_operation or new_id("boot")
        engines = self.options.engines or tuple(self.roster.new_ids(size))
        refuse_id("operation", operation)
        for engine in engines:
            refuse_id("engine", engine)
        if len(set(engines)) != size:
            raise RequestRefused(f"{len(set(engines))} engines are named: {', '.join(engines)}; expected {size}")
        return operation, engines

    def _bootstrap(self, operation: str, engines: tuple[str, ...]) -> None:
        """The first generation: launch, plan without a protocol, wait until all have booted."""
        self.roster.expect(engines, operation)
        plan = wire.Plan(
            operation=operation,
            generation=1,
            instance=self.instance,
            sender=wire.COORDINATOR,
            protocol="",
            members=engines,
            previous=(),
            roles=dict.fromkeys(engines, "active"),
            store=self._store.address,
        )
        self.members = engines
        begin = time.monotonic()
        for engine in engines:
            self.roster.send(engine, plan)
            if self.options.launch:
                self._launcher.start(engine, self.address, operation)
        self._keep_standing()
        with self._changed:
            done = self._changed.wait_for(lambda: self.failed or self._booted >= set(engines), START_SECONDS)
        if self.failed:
            raise EngineDied(self.failed)
        if not done:
            absent = ", ".join(sorted(set(engines) - self._booted))
            raise DeadlineExpired(f"engines {absent} did not serve within {START_SECONDS:g} s")
        self.generation = 1
        self.start_seconds = time.monotonic() - begin
        self._keep_standing()
        self.router.admit(engines)

    def _committed(self, made: Change) -> None:
        with self._changed:
            if self.members != made.members:
                self.members, self.generation = made.members, self.generation + 1
                self._keep_standing()

    def _keep_standing(self) -> None:
        """Have on disk who serves, if a later coordinator shall find it there."""
        with self._changed:
            standing = standing_of(self) if self.options.keep and self.members else None
            if standing is None or standing == self._kept or self._closed:
                return
            try:
                self.ledger.write_standing(standing)
                self._kept = standing
            except OSError as error:
                log.error("who serves could not be written: %s", error)

    def _submit(self, engine: str, message: wire.Submit) -> None:
        self.roster.send(engine, msgspec.structs.replace(message, sender=wire.COORDINATOR, instance=self.instance))

    # -- the hub's thread --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            with self._hub:
                self._attend()
        except BaseException as error:  # a thread that dies makes its owner fail; it is never just gone
            self._fail(f"the deployment's own thread ended by {type(error).__name__}: {error}")
            conclude(self)
            raise

    def _attend(self) -> None:
        due = 0.0
        while not self._stopping.is_set():
            for engine, message in self._hub.poll(POLL):
                self._receive(engine, message)
            if time.monotonic() >= due:
                due = time.monotonic() + POLL
                self._watch()
        self._hub.flush()  # engines of others are told to end, too

    def _stop_thread(self) -> None:
        self._stopping.set()
        if self._thread is None:
            self._hub.close()
            return
        self._hub.ring()
        self._thread.join(5)

    def _receive(self, engine: str, message: wire.Mail) -> None:
        receive(self, engine, message)

    def _has_booted(self, engine: str) -> None:
        with self._changed:
            self._booted.add(engine)
            self._changed.notify_all()

    def _watch(self) -> None:
        watch(self)
        self.retirements.tick(self)
        self._keep_standing()

    def _fail(self, reason: str) -> None:
        """Say so to everybody who waits: the first reason stands, and open requests end by it."""
        with self._changed:
            self.failed = self.failed or reason
            self._changed.notify_all()
        self.router.close(self.failed)
