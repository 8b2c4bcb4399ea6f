"""The process groups of one engine: at most an active generation beside a standby or a retired one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from elasticfsm.errors import GroupError, RequestRefused

from .creation import BACKENDS, KINDS, ROWS, Creation, Limits, Plan
from .deadline import Cancelled, Deadline
from .group import Group, Unwatched, Watch
from .identity import Identity
from .nccl import NcclGroup
from .reaper import Reaper

NAMES = ("active", "standby", "retired")

Renewed = Literal["world", "eplb", "rows"]


@dataclass(eq=False)
class Generation:
    """Four groups over the same ordered members; ranks are per generation, engine ids are stable.

    `world` is for what is sent from one engine to another: weights before the switch, expert rows after it, both only
    by p2p. So a row that does not come costs no collective. On a GPU `ep` is a group of the device, and `rows`, another
    one, moves expert rows beside `eplb`. `world`, `eplb` and `rows` may be made anew (`renew`).
    """

    number: int
    operation: str
    members: tuple[str, ...]
    rank: int
    world: Group
    dp: Group
    ep: Group | NcclGroup
    eplb: Group
    rows: NcclGroup | None = None

    @property
    def world_size(self) -> int:
        """How many engines."""
        return len(self.members)

    @property
    def groups(self) -> tuple[Group | NcclGroup, ...]:
        """All groups, in the order in which they were created."""
        four = (self.world, self.dp, self.ep, self.eplb)
        return four if self.rows is None else (*four, self.rows)

    def rename(self, name: str) -> None:
        """Label the groups "<kind>.<name>"."""
        for kind, group in zip((*KINDS, ROWS), self.groups, strict=False):
            group.label = f"{kind}.{name}"

    def cut(self, reason: str) -> None:
        """Cut all groups."""
        for group in self.groups:
            group.cut(reason)


class Groups:
    """The adapter behind the steps `groups.*`: create, join, switch, revert, destroy.

    `create` and `join` wait for peers (GroupError, DeadlineExpired or GroupCut if they fail); all else is local.
    `cancel` and `cut` may be called from any thread, all other methods belong to the thread that runs the steps.
    """

    def __init__(
        self,
        store: str,
        watch: Watch | None = None,
        *,
        reaper: Reaper | None = None,
        limits: Limits | None = None,
        host: str = "127.0.0.1",
        backend: str = "gloo",
    ) -> None:
        self.active: Generation | None = None
        self.standby: Generation | None = None
        self.retired: Generation | None = None
        self.reaper = reaper or Reaper()
        self.limits = limits or Limits()
        self._store = store
        self._watch: Watch = watch or Unwatched()
        self._host = host
        self._backend = backend
        self._plan: Plan | None = None
        self._cancelled = threading.Event()
        self._lock = threading.RLock()

    # -- steps -------------------------------------------------------------------------------------------------

    def plan(self, operation: str, generation: int, members: Sequence[str], me: str, store: str | None = None) -> None:
        """Say what `create` shall create; `members` in rank order, `store` if it is not the one given at start."""
        self._store = store or self._store
        self._plan = Plan(operation, generation, tuple(members), me, self._store)
        self._cancelled.clear()

    def create(self, name: str = "standby", cancelled: Cancelled = None) -> None:
        """Create the planned generation under `name`; every member calls it, it blocks until all have.

        Waits first until the local retired generation is gone, so that at most two exist, and with it what is left of
        an attempt that broke off; as long as the others wait for this engine to arrive.
        """
        plan = self._plan
        if plan is None:
            raise RequestRefused(f"no plan for {name}: call plan() before create()")
        if self._get(name) is not None:
            raise RequestRefused(f"{name} exists already: destroy it before another one is created")
        stop = _either(self._cancelled, cancelled)
        self._wait_retired(Deadline(self.limits.arrive, f"{plan.prefix} waits for the retired generation", stop))
        made = Creation(plan, self.limits, self._host, self._backend).result(stop, self.reaper)
        size = len(plan.members)
        groups = {
            kind: group(
                f"{kind}.{name}",
                backend,
                plan.rank,
                size,
                wires=wires,
                reaper=self.reaper,
                watch=self._watch_of(kind),
                within=self.limits.step,
            )
            for (kind, (_, group)), (backend, wires) in zip(BACKENDS[self._backend].items(), made, strict=True)
        }
        with self._lock:
            setattr(self, name, Generation(plan.number, plan.operation, plan.members, plan.rank, **groups))

    def renew(self, name: str, kind: Renewed, attempt: int, within: float) -> None:
        """Replace the world, eplb or rows group of a generation by a new one; every member calls it after one step.

        `attempt` is a number that all members know alike and that does not come again in this generation, as that of
        the step: who missed one attempt meets the others at the next. Blocks until all have called, at most twice
        `within` seconds. Raises GroupError when the group cannot be made: the generation then keeps the one it has,
        which is closed, and every other group.
        """
        old = self.need(name)
        had: Group | NcclGroup = getattr(old, kind)
        had.cut(f"attempt {attempt} to make it anew has begun")
        me, renewal = old.members[old.rank], f"{kind}-{attempt}"
        plan = Plan(old.operation, old.number, old.members, me, self._store, renewal)
        limits = Limits(within, within, self.limits.step)
        ((backend, wires),) = Creation(plan, limits, self._host, kind).result(self._cancelled, self.reaper)
        size, label, step = len(old.members), f"{kind}.{name}", self.limits.step
        group, watch = BACKENDS[kind][kind][1], self._watch_of(kind)
        made = group(label, backend, old.rank, size, wires=wires, reaper=self.reaper, watch=watch, within=step)
        setattr(old, kind, made)
        if not old.dp.alive:  # all were cut meanwhile, and this one was not among them
            made.cut("its generation has been cut")

    def meet_at(self, store: str) -> None:
        """Use this store from now on: of an engine that takes part in an operation without being in its generation."""
        self._store = store

    def join(
        self,
        name: str = "standby",
        within: float | None = 5.0,
        facts: Mapping[str, int] | None = None,
        cancelled: Cancelled = None,
    ) -> Mapping[str, int]:
        """Meet all members of a generation on its dp group; returns what all of them agree on.

        Compared are operation, generation and `facts` (63-bit integers under the same names on all ranks, such as the
        hash of the expert map); IdentityMismatch names the one that differs. Blocks at most `within` seconds (None: as
        long as any operation of the group).
        """
        generation = self.need(name)
        identity = Identity(("operation", "generation", *sorted(facts or {})))
        values = {"generation": generation.number, **(facts or {})}
        return identity.compare(generation.dp, generation.operation, values, within, cancelled)

    def switch(self) -> None:
        """Rename: active becomes retired, standby becomes active; a swap of pointers."""
        with self._lock:
            if self.standby is None or self.retired is not None:
                raise GroupError(f"cannot switch: {self._state()}; expected a standby and no retired generation")
            self.retired, self.active, self.standby = self.active, self.standby, None
            self._relabel()

    def revert(self) -> None:
        """Rename back: active becomes standby, retired becomes active; possible until `retired` is destroyed."""
        with self._lock:
            if self.retired is None or self.standby is not None:
                raise GroupError(f"cannot revert: {self._state()}; expected a retired and no standby generation")
            self.standby, self.active, self.retired = self.active, self.retired, None
            self._relabel()

    def destroy(self, name: str) -> None:
        """Give a generation to the reaper; local, returns at once, idempotent, never a collective."""
        with self._lock:
            generation = self._get(name)
            setattr(self, name, None)
        if generation is not None:
            generation.cut("destroyed by this engine")

    # -- from other threads ------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Make the running `create` (or the next one of this plan) raise GroupCut within a second."""
        self._cancelled.set()

    def cut(self, name: str, reason: str) -> None:
        """Cut all groups of a generation, freeing whoever waits in them; the name keeps them until `destroy`."""
        with self._lock:
            generation = self._get(name)
        if generation is not None:
            generation.cut(reason)

    # -- looking -----------------------------------------------------------------------------------------------

    def need(self, name: str) -> Generation:
        """The generation of that name; GroupError when there is none."""
        generation = self._get(name)
        if generation is None:
            raise GroupError(f"there is no {name} generation: {self._state()}")
        return generation

    def alive(self) -> Iterator[Generation]:
        """The generations that exist now."""
        with self._lock:
            found = [generation for name in NAMES if (generation := self._get(name)) is not None]
        yield from found

    def close_all(self, within: float = 5.0) -> list[str]:
        """Destroy everything and wait for the reaper; returns the labels of what remained, empty when all is gone."""
        self.cancel()
        for name in NAMES:
            self.destroy(name)
        return self.reaper.close(within)

    def _get(self, name: str) -> Generation | None:
        if name not in NAMES:
            raise RequestRefused(f"no generation is called {name!r}; there are {', '.join(NAMES)}")
        found: Generation | None = getattr(self, name)
        return found

    def _watch_of(self, kind: str) -> Watch:
        return self._watch if kind != ROWS else Unwatched()  # rows are no collective of the spec

    def _state(self) -> str:
        numbers = ((name, self._get(name)) for name in NAMES)
        return ", ".join(f"{name} is {found.number if found else 'none'}" for name, found in numbers)

    def _relabel(self) -> None:
        for name in NAMES:
            generation = self._get(name)
            if generation is not None:
                generation.rename(name)

    def _wait_retired(self, deadline: Deadline) -> None:
        while self.retired is not None:
            time.sleep(deadline.slice(0.01))
        self.reaper.wait_empty(deadline)


def _either(event: threading.Event, other: Cancelled) -> Cancelled:
    if other is None:
        return event
    ask = other.is_set if isinstance(other, threading.Event) else other
    return lambda: event.is_set() or ask()
