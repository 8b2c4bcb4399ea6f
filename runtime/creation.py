"""Creating the groups of a generation: arrive, then enter; in a thread that can be cut and, at worst, abandoned."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from elasticfsm.errors import ElasticError, GroupCut, GroupError, RequestRefused

from .cut import Wires
from .deadline import Cancelled, Deadline
from .gloo import GlooEndpoint
from .group import Group
from .nccl import NcclEndpoint, NcclGroup
from .reaper import Reaper
from .store import StoreClient

KINDS = ("world", "dp", "ep", "eplb")  # created in this order on every rank
ROWS = "rows"  # beside eplb, for the rows themselves, where the device moves them; eplb compares facts on the host

# Per kind of group: where it is made, and what it is used as. What is compared stays on the host with every backend.
GLOO = (GlooEndpoint, Group)
NCCL = (NcclEndpoint, NcclGroup)
BACKENDS: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    "gloo": dict.fromkeys(KINDS, GLOO),
    "nccl": {**dict.fromkeys(KINDS, GLOO), "ep": NCCL, ROWS: NCCL},
    "world": {"world": GLOO},  # that one alone, anew
    "eplb": {"eplb": GLOO},  # the same; with every backend it lies on the host
    ROWS: {ROWS: NCCL},  # the same; there is one on devices only
}

_GRACE = 0.5  # seconds that a cancelled creation gets to end by itself before it is left to the reaper


@dataclass(frozen=True)
class Plan:
    """Who will be in a generation: `members` are engine ids in rank order, `me` is this engine's.

    `renewal` names the attempt to create a group of a generation that exists already anew.
    """

    operation: str
    number: int
    members: tuple[str, ...]
    me: str
    store: str
    renewal: str = ""

    def __post_init__(self) -> None:
        if not self.operation or "/" in self.operation:
            raise RequestRefused(f"operation id {self.operation!r}: expected a non-empty text without '/'")
        if len(set(self.members)) != len(self.members):
            raise RequestRefused(f"members {', '.join(self.members)}: an engine is named twice")
        if self.me not in self.members:
            raise RequestRefused(f"engine {self.me} is not among the members {', '.join(self.members)}")

    @property
    def rank(self) -> int:
        """This engine's rank."""
        return self.members.index(self.me)

    @property
    def prefix(self) -> str:
        """Where this generation's keys live in the store; the operation id comes first."""
        return f"{self.operation}/{self.number}" + (f".{self.renewal}" if self.renewal else "")


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds: all members to arrive, a group to form, one operation to end."""

    arrive: float = 120.0
    connect: float = 10.0
    step: float = 60.0

    def scaled(self, by: float) -> Limits:
        """These limits, all multiplied."""
        return Limits(self.arrive * by, self.connect * by, self.step * by)


class Creation:
    """One attempt to create all groups of a plan; `result` blocks, everything it blocks in happens in a thread."""

    def __init__(self, plan: Plan, limits: Limits, host: str, backend: str) -> None:
        self._plan = plan
        self._limits = limits
        self._host = host
        self._kinds = BACKENDS[backend]
        self._given_up = threading.Event()
        self._finished = threading.Event()
        self._client: StoreClient | None = None
        self._wires: list[Wires] = []
        self._groups: list[tuple[Any, Wires]] = []
        self._error: ElasticError | None = None
        self._thread = threading.Thread(target=self._run, name=f"create {plan.prefix}", daemon=True)
        self._thread.start()

    def result(self, cancelled: Cancelled, reaper: Reaper) -> list[tuple[Any, Wires]]:
        """(process group, its connections) for each kind of the backend, in its order.

        Raises GroupCut when cancelled (within a second, whatever the thread is blocked in), DeadlineExpired when
        somebody did not arrive, GroupError else; what had been created is then cut and given to the reaper.
        """
        limit = self._limits.arrive + len(self._kinds) * self._limits.connect + 1
        deadline = Deadline(limit, f"creation of {self._plan.prefix}", cancelled)
        try:
            while not self._finished.wait(deadline.slice()):
                pass
            if self._error is not None:
                raise self._error
        except GroupError:
            self._abandon(reaper)
            raise
        return self._groups

    def _abandon(self, reaper: Reaper) -> None:
        self._given_up.set()
        self._cut()
        self._finished.wait(_GRACE)
        # The list itself: what formed although given up must go even if a kept traceback still refers to this attempt.
        reaper.take(f"creation of {self._plan.prefix}", self._ended, cast(list[object], self._groups))

    def _ended(self) -> bool:
        self._cut()  # again: what the thread connected after it was given up
        return self._finished.is_set()

    def _cut(self) -> None:
        if self._client is not None:
            self._client.cut()
        for wires in self._wires:
            wires.cut()

    def _run(self) -> None:
        try:
            self._create()
        except ElasticError as error:
            self._error = error
        except RuntimeError as error:
            text = (str(error).splitlines() or [""])[0]
            self._error = GroupError(f"creation of {self._plan.prefix} as {self._plan.me} failed: {text}")
        finally:
            if self._error is not None:
                self._groups.clear()
            self._client = None
            self._finished.set()

    def _create(self) -> None:
        plan, limits = self._plan, self._limits
        self._client = client = StoreClient(plan.store, limits.connect)
        endpoints = [endpoint(self._host) for endpoint, _ in self._kinds.values()]
        mine = json.dumps([each.address for each in endpoints])
        arrived = client.arrive(
            f"{plan.prefix}/arrived", plan.members, plan.me, mine, within=limits.arrive, cancelled=self._given_up
        )
        addresses = [json.loads(arrived[member]) for member in plan.members]
        for index, kind in enumerate(self._kinds):
            wires = endpoints[index].wires([each[index] for each in addresses])
            self._wires.append(wires)
            if self._given_up.is_set():
                raise GroupCut(f"creation of {plan.prefix} was cancelled")
            backend = endpoints[index].connect(
                client.raw,
                f"{plan.prefix}/{kind}",
                plan.rank,
                len(plan.members),
                within=limits.connect,
                step_within=limits.step,
            )
            self._groups.append((backend, wires))
