"""The library inside one engine: machines, monitor, journal, groups, transfers and experts behind one object.

An engine core makes one `Elastic`, gives it plans and letters as they come, and calls `turn` in its main loop; between
two turns it may do as it likes. The first generation is made by the same steps as every other (`bootstrap`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NamedTuple

import msgspec

from elasticfsm.compile import Program, program
from elasticfsm.errors import ElasticError, GroupError
from elasticfsm.journal import Journal
from elasticfsm.machine import ABSENT
from elasticfsm.mailbox import Letter
from elasticfsm.monitor import Monitor, Violation
from elasticfsm.protocol import Step
from elasticfsm.seat import Job, Result

from .creation import Limits
from .experts.audit import Audit
from .experts.balance import Balance
from .experts.cadence import Cadence, Pace, synchronous
from .experts.placement import Placement
from .experts.placing import Loads, Placements
from .experts.plan import DEFAULT_POLICY
from .experts.policy.settings import Policy
from .experts.rebalance import Experts
from .experts.state import ExpertState, Mode
from .group import Group
from .groups import Generation, Groups, Renewed
from .hands import (
    CacheSteps,
    Core,
    ForwardSteps,
    GraphSteps,
    GroupSteps,
    LoadSteps,
    PlacementSteps,
    RequestSteps,
    WeightSteps,
)
from .interpreter import Board, Interpreter, Operation
from .rehearsal import Rehearsal
from .store import StoreClient
from .weights.board import StoreBoard
from .weights.choice import Transfers
from .weights.sharing import Meeting, WeightSharing
from .wire import Plan

BASE = "rebalance"  # brings serving along
OPERATIONS = ("scale_up", "scale_down")
SERVING = "serving.engine"
WORKER = "rebalance.worker"
BOOT = ("groups.create", "cache.agree", "groups.join", "groups.switch")

CACHE_SECONDS = 30.0  # for all members of a new generation to agree on the cache
JOIN_SECONDS = 10.0

Post = Callable[[Letter, Collection[str]], None]


class Eplb(NamedTuple):
    """How experts are balanced: pace, steps between two plans, checksums of all experts (empty: never compared), the
    bytes of rows that may arrive beside one step (0: a layer at a time), and where experts should be.
    """

    pace: Pace = "async"
    interval: int = 200
    sums: tuple[int, ...] = ()
    step_bytes: int = 0
    policy: Policy = DEFAULT_POLICY


DEFAULT_EPLB = Eplb()


class Shape:
    """What the library must know of the model: layers, experts, and slots per rank."""

    def __init__(self, layers: int, experts: int, slots: int) -> None:
        self.layers, self.experts, self.slots = layers, experts, slots


class Elastic:
    """Everything of one engine but its core. `begin`, `bootstrap`, `turn` and `close` belong to the main loop.

    `post(letter, peers)` carries a letter to the coordinator, or to these peers when there are any; it must not block.
    `backend` is what the groups are made of, `wrap` may replace adapters, as an engine with device streams does.
    `transfers` are offered the expert slots, which must not change their address from here on. All limits of time are
    multiplied by `timescale`.
    """

    def __init__(
        self,
        engine: str,
        core: Core,
        shape: Shape,
        transfers: Transfers,
        post: Post,
        journal: Journal,
        *,
        store: str,
        ended: Callable[[Operation, str, str], None],
        eplb: Eplb = DEFAULT_EPLB,
        experts: type[Experts] = Experts,
        said: Callable[[Operation, str], None] = lambda operation, text: None,
        timescale: float = 1.0,
        backend: str = "gloo",
        limits: Limits | None = None,
        wrap: Callable[[dict[str, object], ExpertState], None] = lambda adapters, state: None,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.transfers = transfers
        self.board = Board()
        self.monitor = Monitor(engine, journal, on_refused=self._refused)
        limits = (limits or Limits()).scaled(timescale)
        self.groups = Groups(store, self.monitor, limits=limits, backend=backend)
        self.removing: tuple[str, ...] = ()
        self._core = core
        self._post = post
        self._closing = False
        self._client: StoreClient | None = None
        self._told = ended
        self._said = said
        self._gone: deque[str] = deque()
        base = scaled(program(BASE), timescale)
        self.cadence = Cadence(eplb.pace, eplb.interval, lambda: self.board.step)
        self.experts = ExpertState(
            engine, core.memory, transfers, self._generation, shape.layers, shape.experts, shape.slots
        )
        self.experts.seconds = base.deadlines["layer"]
        self.experts.patience = limits.step
        self.experts.budget = eplb.step_bytes
        self.experts.planned = self.cadence.planned
        self.experts.renew_group = self._renew
        self._audit = Audit(eplb.sums, journal)
        self.experts.offer()
        loads = self._loads = Loads(self.experts)
        self._balance = Balance()
        placements = Placements(self.experts, loads, eplb.policy)
        sharing = WeightSharing(transfers.beside(), core.weights())
        self._weights = WeightSteps(sharing)
        self._cache = CacheSteps(core, self.groups, transfers, CACHE_SECONDS * timescale)
        steps = GroupSteps(self.groups, placements, self.cadence.switched, JOIN_SECONDS * timescale)
        self.adapters: dict[str, object] = {
            "groups": steps,
            "step": ForwardSteps(core, self.groups, steps, self.board, limits.step, self.experts),
            "rehearsal": Rehearsal(self.groups),
            "graphs": GraphSteps(core, self.groups),
            "weights": self._weights,
            "cache": self._cache,
            "load": LoadSteps(loads, self.experts, self._mode),
            "placement": PlacementSteps(placements),
            "experts": experts(self.experts, lambda: self._closing),
            "requests": RequestSteps(core),
        }
        wrap(self.adapters, self.experts)
        self.machines = Interpreter(
            engine,
            synchronous(base) if eplb.pace == "sync" else base,
            {name: program(name) for name in OPERATIONS},
            self.adapters,
            self._send,
            journal,
            board=self.board,
            monitor=self.monitor,
            environment={"request": core.has_work, "due": self.cadence.due},
            ended=self._ended,
            failed=self._failed,
        )

    # -- plans -------------------------------------------------------------------------------------------------

    def bootstrap(self, plan: Plan, load: Callable[[Placement, int], None]) -> None:
        """Make the first generation with all its members, let `load` fill weights and experts, and begin to serve.

        The steps are those of every other switch (create, join, switch) through the same hands and the same monitor;
        only votes are missing, because nobody serves yet. Blocks until all members are here; GroupError if they aren't.
        """
        state = self.experts
        size = len(plan.members)
        state.shared = Placement.initial(state.layers, state.experts, size, state.slots_per_rank, plan.operation)
        self.groups.plan(plan.operation, plan.generation, plan.members, self.engine, plan.store)
        steps = [Step(name, "" if name == "groups.switch" else "standby") for name in BOOT]
        self._cache.founding = True
        self.machines.bootstrap(Operation(plan.operation, plan.generation, plan.members), steps)
        self._cache.founding = False
        load(state.current(), self.groups.need("active").rank)
        self._audit(state, "load")
        state.ended = self._audit
        self.machines.start()

    def begin(self, plan: Plan) -> None:
        """Get ready for an operation: its machine is seated, its first message may follow.

        Raises RequestRefused while another one runs, and for one that has ended here.
        """
        operation = Operation(plan.operation, plan.generation, plan.members, plan.deadlines)
        self.machines.begin(plan.protocol, plan.roles[self.engine], operation)
        self.experts.ended = self._audit
        self.removing = tuple(engine for engine in plan.previous if engine not in plan.members)
        if self.engine in plan.members:
            self.groups.plan(plan.operation, plan.generation, plan.members, self.engine, plan.store)
        else:
            self.groups.meet_at(plan.store)
        new = tuple(engine for engine in plan.members if engine not in plan.previous)
        board = _LazyBoard(plan.store, plan.operation, self._keep)
        seconds = plan.deadlines.get("prepare", program(plan.protocol).deadlines.get("prepare", 300.0))
        self._weights.begin(
            lambda cancelled: Meeting(plan.previous, new, board, seconds, cancelled, self._standby_world)
        )

    def deliver(self, letter: Letter) -> None:
        """Put a message of the spec into the inbox; any thread."""
        self.machines.deliver(letter)

    def dead(self, engine: str) -> None:
        """An engine is declared dead: cut every group that contains it; any thread, does not block."""
        for name in ("active", "standby"):
            generation = self._generation(name)
            if generation is not None and engine in generation.members:
                self.groups.cut(name, f"engine {engine} is dead")
        self._gone.append(engine)

    def counters(self) -> dict[str, int]:
        """Return totals since the start, and how many generations exist now, for status and reports; any thread."""
        tally = self.experts.tally
        return {
            **{f"bytes_{path}": count for path, count in self.transfers.moved.items()},
            "violations": len(self.monitor.violations),
            "generations": sum(1 for _ in self.groups.alive()),
            "balance_ppm": self._balance.ppm(self._loads.total, self.experts.placement),
            "layers_moved": tally.layers,
            "experts_moved": tally.rows,
            "rebalances": tally.rebalances,
            "rebalances_broken": tally.broken,
            "experts_checked": tally.checked,
            "experts_wrong": tally.wrong,
        }

    # -- the main loop -----------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether turns are still worth taking."""
        return self.machines.alive and not self.broken

    @property
    def broken(self) -> str:
        """Why serving has broken; empty while it has not, and when an operation has made it stand again."""
        gone = self.machines.state_of(SERVING) in (ABSENT, "broken")
        return self.machines.errors().get(SERVING, "") if gone else ""

    def turn(self) -> bool:
        """One pass at the boundary, with a forward step if one is due; whether anything was done."""
        did = self.machines.turn()
        self.transfers.pump()
        while self._gone:
            self.transfers.settle(self._gone.popleft())
        return did

    def wait(self, seconds: float) -> None:
        """Block until there is something to do, or `seconds` are over."""
        self.machines.wait(seconds)

    def close(self, within: float = 5.0) -> list[str]:
        """Free everything; returns what could not be freed in time."""
        self._closing = True
        self.groups.cancel()
        for name in ("active", "standby", "retired"):
            self.groups.cut(name, "the engine ends")
        left = self.machines.close(within)
        left += self.groups.close_all(within)
        self._forget_client()
        self.transfers.close()
        self.journal.close()
        return left

    # -- inside ------------------------------------------------------------------------------------------------

    def _generation(self, name: str) -> Generation | None:
        with suppress(GroupError):
            return self.groups.need(name)
        return None

    def _renew(self, name: str, kind: Renewed, within: float) -> None:
        attempt = self.board.step  # all members come from the same one
        self.groups.renew(name, kind, attempt, within)
        self.monitor.renewed(f"{kind}.{name}", attempt)

    def _standby_world(self) -> tuple[Group, tuple[str, ...]]:
        standby = self.groups.need("standby")
        return standby.world, standby.members

    def _mode(self) -> tuple[Mode, tuple[str, ...]]:
        """What a plan is for: every engine stands in `evacuating` when the vote for it was full, and only then."""
        role = self.machines.role
        evacuating = self.machines.state_of(f"scale_down.{role}") == "evacuating"
        return ("evacuate", self.removing) if evacuating else ("spread", ())

    def _send(self, letter: Letter) -> None:
        active = self.groups.active
        peers = active.members if letter.receiver == SERVING and active is not None else ()
        self._post(letter, tuple(peer for peer in peers if peer != self.engine))

    def _refused(self, violation: Violation) -> None:
        """A refusal closes this operation's groups here, so that peers fail fast instead of waiting."""
        name = violation.group.rpartition(".")[2]
        with suppress(ElasticError):
            self.groups.cut(name, str(violation))

    def _failed(self, job: Job, result: Result) -> None:
        """Failure is contagious: peers that wait in a group where this engine will not come hear of it at once."""
        if job.machine in (SERVING, WORKER, "bootstrap"):  # a layer that is lost is said by the spec's own message
            return
        text = f"{job.machine} failed in `{job.state}`: {result.error}"
        if job.machine.startswith(BASE):
            active = self._generation("active")
            if active is not None:
                active.eplb.cut(text)
        else:
            operation = self.machines.operation
            if operation is not None:  # said before the cut: the cause must not be what peers then complain of
                self._said(operation, f"{result.step}: {result.error}")
            self.groups.cut("standby", text)

    def _ended(self, operation: Operation, end: str, error: str) -> None:
        self._forget_client()
        if end == "done":  # whatever its last steps came to: nobody needs what it left behind
            self.groups.destroy("retired" if self.engine in operation.members else "active")
        else:  # the same; and peers that wait here must not wait until their deadline
            self.groups.destroy("standby")
            with suppress(ElasticError):
                self._weights.forget()
        self._told(operation, end, error)

    def _keep(self, client: StoreClient) -> None:
        self._client = client

    def _forget_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def scaled(one: Program, timescale: float) -> Program:
    """The program with deadlines that are `timescale` times as long."""
    deadlines = {name: seconds * timescale for name, seconds in one.deadlines.items()}
    return msgspec.structs.replace(one, deadlines=deadlines)


class _LazyBoard:
    """A StoreBoard that connects when it is first used, in the thread that uses it."""

    def __init__(self, store: str, operation: str, keep: Callable[[StoreClient], None]) -> None:
        self._store = store
        self._operation = operation
        self._keep = keep
        self._board: StoreBoard | None = None

    def set(self, key: str, value: bytes) -> None:
        """See Board.set."""
        self._connected().set(key, value)

    def get(self, key: str) -> bytes | None:
        """See Board.get."""
        return self._connected().get(key)

    def clear(self, prefix: str) -> None:
        """See Board.clear."""
        self._connected().clear(prefix)

    def _connected(self) -> StoreBoard:
        if self._board is None:
            client = StoreClient(self._store)
            self._keep(client)
            self._board = StoreBoard(client, self._operation)
        return self._board
