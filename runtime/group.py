"""One process group whose waits are sliced, whose failures are contagious, and which any thread may cut."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    ReduceOp,
    ReduceScatterOptions,
)

from elasticfsm.errors import GroupCut, GroupError

from .cut import Wires
from .deadline import SLICE, Cancelled, Deadline
from .reaper import Reaper

_SLICE = timedelta(seconds=SLICE)
_GLANCE = timedelta(milliseconds=1)
_REDUCE = {"sum": ReduceOp.SUM, "max": ReduceOp.MAX, "min": ReduceOp.MIN}


class Watch(Protocol):
    """Who is asked before and told after each collective; `before` may raise Refused, then nothing is issued."""

    def before(self, group: str, op: str) -> None:
        """Called just before `op` is issued on `group` ("dp.active")."""

    def after(self, group: str, op: str, error: BaseException | None) -> None:
        """Called when the wait for `op` has ended, with its error if it failed."""


class Unwatched:
    """A watch that allows everything and records nothing."""

    def before(self, group: str, op: str) -> None:
        """Allow."""

    def after(self, group: str, op: str, error: BaseException | None) -> None:
        """Ignore."""


class Pending:
    """A posted operation; its tensors must not be touched until `wait` returned. Its owner waits for it once."""

    def __init__(self, group: Group, op: str, work: Any, tensors: Sequence[Tensor], sliced: bool) -> None:
        self.op = op
        self._group = group
        self._label = group.label
        self._work = work
        self._tensors = tensors
        self._sliced = sliced

    def done(self) -> bool:
        """Whether the operation has ended, well or badly; takes a millisecond at most. For collectives only."""
        return self._work is None or _ended(self._work)

    def wait(self, within: float | None = None, cancelled: Cancelled = None) -> None:
        """Block until the operation has ended, at most `within` seconds (default: the group's own).

        Raises DeadlineExpired, GroupCut (cut here, or cancelled) or GroupError; each of them closes the group, because
        the operation cannot be taken back. A cancellation is seen by all but send and recv: those are freed by a cut.
        """
        if self._work is None:
            return
        group = self._group
        seconds = group.within if within is None else within
        try:
            deadline = Deadline(seconds, self._what(), cancelled)
            if self._sliced:
                self._wait_sliced(deadline)
            else:
                self._wait_whole(deadline)
        except GroupError as error:
            group.close(error)
            group.watch.after(self._label, self.op, error)
            raise
        finally:
            self._work = None
            group.settle(self)
        group.watch.after(self._label, self.op, None)

    def remains(self) -> Callable[[], bool]:
        """A question for the reaper: has the operation ended, so that its buffers are free? Asked after the cut."""
        work, sliced = self._work, self._sliced

        def ended() -> bool:
            if work is None:
                return True
            if sliced:
                return _ended(work)
            with suppress(RuntimeError):  # it fails at once, or expires and closes the context: no slices here either
                work.wait(_SLICE)
            return True

        return ended

    def _wait_sliced(self, deadline: Deadline) -> None:
        lost = 0
        while True:
            seconds = deadline.slice()
            begun = time.monotonic()
            try:
                self._work.wait(timedelta(seconds=seconds))
                return
            except RuntimeError as error:
                self._group.check()
                if time.monotonic() - begun < seconds / 2:
                    raise GroupError(f"{deadline.what} failed: {_first_line(error)}") from None
            # gloo tells only the neighbours of a dead peer, so look. Twice, since data may still be on its way.
            lost = 0 if self._group.whole() else lost + 1
            if lost == 2:
                raise GroupError(f"{deadline.what} failed: a peer has closed its connection")

    def _wait_whole(self, deadline: Deadline) -> None:
        # gloo closes the whole context when a wait for send or recv expires, so there are no slices here.
        try:
            self._work.wait(timedelta(seconds=deadline.slice(deadline.within)))
        except RuntimeError as error:
            self._group.check()
            deadline.slice()
            raise GroupError(f"{deadline.what} failed: {_first_line(error)}") from None

    def _what(self) -> str:
        return f"{self.op} on {self._label} at rank {self._group.rank} of {self._group.size}"


class Group:
    """A stateless process group of `size` members; every rank calls the collectives in the same order.

    Tensors are contiguous CPU tensors (gloo). Blocking calls last at most `within` seconds. After the first error,
    deadline or cut the connections are shut down, so that peers fail at once, too, and every further call raises.
    `label` is "<kind>.<name>" ("dp.active"); the owner renames it when generations change places.
    """

    device = "cpu"  # where its tensors lie

    def __init__(
        self,
        label: str,
        backend: Any,
        rank: int,
        size: int,
        *,
        wires: Wires,
        reaper: Reaper,
        watch: Watch,
        within: float,
    ) -> None:
        self.label = label
        self.rank = rank
        self.size = size
        self.watch = watch
        self.within = within
        self._backend = backend
        self._wires = wires
        self._reaper = reaper
        self._ended: GroupError | None = None
        self._pending: set[Pending] = set()
        self._lock = threading.Lock()

    # -- collectives that return when they are done ------------------------------------------------------------

    def all_reduce(self, t: Tensor, op: str = "sum", within: float | None = None, cancelled: Cancelled = None) -> None:
        """Reduce `t` in place over all ranks; op is "sum", "max" or "min"."""
        self.post_all_reduce(t, op).wait(within, cancelled)

    def all_gather(self, out: Tensor, t: Tensor) -> None:
        """Gather `t` [n, ...] of every rank into `out` [size * n, ...], in rank order."""
        self.post_all_gather(out, t).wait()

    def reduce_scatter(self, out: Tensor, t: Tensor) -> None:
        """Sum `t` [size * n, ...] over all ranks; this rank keeps its n rows in `out` [n, ...]."""
        self.post_reduce_scatter(out, t).wait()

    def broadcast(self, t: Tensor, root: int) -> None:
        """Copy `t` from rank `root` to all; no barrier: a receiver may leave before others have entered."""
        self._post("broadcast", (t,), lambda pg: pg.broadcast(t, root)).wait()

    def all_to_all(self, out: Tensor, t: Tensor, out_rows: Sequence[int] = (), rows: Sequence[int] = ()) -> None:
        """Send `rows[r]` rows of `t` to each rank r and receive `out_rows[r]` from it (empty: equal shares)."""
        call = lambda pg: pg.alltoall_base(out, t, list(out_rows), list(rows))  # noqa: E731
        self._post("all_to_all", (out, t), call).wait()

    def barrier(self) -> None:
        """Return when all ranks have entered."""
        self.all_reduce(Tensor([0.0]))

    def send(self, t: Tensor, peer: int) -> None:
        """Send `t` to rank `peer`, which calls recv; returns when the tensor may be changed again."""
        self.post_send(t, peer).wait()

    def recv(self, t: Tensor, peer: int) -> None:
        """Receive into `t` from rank `peer`."""
        self.post_recv(t, peer).wait()

    # -- collectives that are only issued ----------------------------------------------------------------------

    def post_all_reduce(self, t: Tensor, op: str = "sum") -> Pending:
        """Issue an all_reduce; does not block."""
        return self._post("all_reduce", (t,), lambda pg: pg.allreduce([t], _REDUCE[op]))

    def post_all_gather(self, out: Tensor, t: Tensor) -> Pending:
        """Issue an all_gather; does not block."""
        return self._post("all_gather", (out, t), lambda pg: pg._allgather_base(out, t, AllgatherOptions()))

    def post_reduce_scatter(self, out: Tensor, t: Tensor) -> Pending:
        """Issue a reduce_scatter (sum); does not block."""
        call = lambda pg: pg._reduce_scatter_base(out, t, ReduceScatterOptions())  # noqa: E731
        return self._post("reduce_scatter", (out, t), call)

    def post_send(self, t: Tensor, peer: int) -> Pending:
        """Issue a send to rank `peer`; does not block."""
        return self._post("send", (t,), lambda pg: pg.send([t], peer, 0), sliced=False)

    def post_recv(self, t: Tensor, peer: int) -> Pending:
        """Issue a receive from rank `peer`; does not block."""
        return self._post("recv", (t,), lambda pg: pg.recv([t], peer, 0), sliced=False)

    # -- the end -----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether calls are still possible."""
        return self._ended is None

    @property
    def pending(self) -> int:
        """How many posted operations nobody has waited for yet."""
        return len(self._pending)

    def whole(self) -> bool:
        """Whether the connections to all peers are still established."""
        return self._wires.count() == self._wires.expected

    def check(self) -> None:
        """Raise GroupCut or GroupError if the group has ended."""
        ended = self._ended
        if ended is not None:
            kind = GroupCut if isinstance(ended, GroupCut) else GroupError
            raise kind(f"{self.label} is closed: {ended}")

    def cut(self, reason: str) -> None:
        """Close from another thread, freeing whoever waits in the group; local, does not block, idempotent."""
        self.close(GroupCut(reason))

    def close(self, error: GroupError) -> None:
        """End the group for the given reason: shut its connections down and leave the rest to the reaper."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = error
            backend, self._backend = self._backend, None
            remains = [each.remains() for each in self._pending]
        self._wires.cut()
        self._reaper.take(self.label, lambda: all(ended() for ended in remains), [remains, backend])

    def settle(self, pending: Pending) -> None:
        """Forget an operation whose wait has ended; called by Pending."""
        with self._lock:
            if self._ended is None:
                self._pending.discard(pending)

    def _post(self, op: str, tensors: Sequence[Tensor], call: Callable[[Any], Any], sliced: bool = True) -> Pending:
        self.check()
        self.watch.before(self.label, op)
        with self._lock:  # so that close() sees every operation that was issued
            try:
                self.check()
                pending = Pending(self, op, call(self._backend), tensors, sliced)
                self._pending.add(pending)
                return pending
            except RuntimeError as error:
                failure = GroupError(
                    f"{op} on {self.label} at rank {self.rank} of {self.size} failed: {_first_line(error)}"
                )
            except GroupError as error:
                failure = error
        self.close(failure)
        self.watch.after(self.label, op, failure)
        raise failure


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _ended(work: Any) -> bool:
    """Whether a posted collective has ended.

    A wait that expires and an operation that failed raise the same RuntimeError, and `is_completed` stays false for
    gloo's reduce_scatter; but only a failure raises before the time is over.
    """
    if work.is_completed():
        return True
    begun = time.monotonic()
    try:
        work.wait(_GLANCE)
    except RuntimeError:
        return time.monotonic() - begun < _GLANCE.total_seconds() / 2
    return True
