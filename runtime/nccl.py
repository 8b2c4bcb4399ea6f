"""Stateless NCCL groups: collectives are queued on the device, waits are looks at an event, the end is an abort.

All of them are issued by one thread, the main loop, at the same step on every engine; only creation, which queues
nothing that serving could wait for, happens in the background. The group looks like `Group` to whoever uses it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store

from elasticfsm.errors import GroupCut, GroupError

from .deadline import Cancelled, Deadline
from .group import Watch
from .reaper import Reaper
from .streams import Once

WORTH_TIMING = 1 << 20  # bytes; less says nothing about the rate
LOOK = 0.0001  # seconds between two looks at an operation of the device
ENVIRONMENT = {
    "NCCL_LAUNCH_ORDER_IMPLICIT": "1",  # kernels of several communicators run in the order in which they were issued
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",  # several engines on one GPU, NCCL 2.32 and newer
    "NCCL_RUNTIME_CONNECT": "0",  # connect when a group is created, not at its first collective
    "NCCL_GRAPH_REGISTER": "0",  # a captured and an eager step of different ranks must move data alike
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # a failed group ends a generation, not the process
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",  # the same, when torch's watchdog meets an error of the device
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}


_timing = Once()


class Releasable(Protocol):
    """Something captured on a group, which has to go before its communicator."""

    def release(self) -> None:
        """Free it; idempotent."""


class NcclWires:
    """Ends a communicator from any thread, also while it is being created; stands where sockets stand with gloo."""

    expected = 0

    def __init__(self) -> None:
        self.backend: Any = None

    def count(self) -> int:
        """NCCL does not show its connections."""
        return 0

    def cut(self) -> int:
        """Abort in a thread of its own: it takes half a second."""
        backend = self.backend
        if backend is not None:
            threading.Thread(target=_abort, args=(backend,), name="abort", daemon=True).start()
        return 0


class NcclEndpoint:
    """The place of one group; NCCL finds its peers through the store, so there is no address."""

    address = ""

    def __init__(self, host: str) -> None:
        self._wires = NcclWires()

    def wires(self, addresses: Sequence[str]) -> NcclWires:
        """What `connect` will make, to be cut while it is being made."""
        return self._wires

    def connect(self, store: Store, prefix: str, rank: int, size: int, *, within: float, step_within: float) -> Any:
        """Create and connect the communicator on this thread's device; blocks until all members have."""
        from torch.distributed import ProcessGroupNCCL

        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=max(within, step_within))
        backend = ProcessGroupNCCL(PrefixStore(prefix, store), rank, size, options)
        self._wires.backend = backend
        backend.eager_connect_single_device(torch.device("cuda", torch.cuda.current_device()))
        return backend


class NcclPending:
    """A posted operation; its tensors must not be touched until `wait` returned."""

    def __init__(self, group: NcclGroup, op: str, work: Any, tensors: Sequence[Tensor]) -> None:
        self.op = op
        self._group, self._label, self._work, self._tensors = group, group.label, work, tensors

    def done(self) -> bool:
        """Whether the device has finished it."""
        return self._work is None or bool(self._work.is_completed())

    def order(self) -> None:
        """Let the current stream wait for it, not the host."""
        if self._work is not None:
            self._work.wait()

    def wait(self, within: float | None = None, cancelled: Cancelled = None) -> None:
        """Block until the device has finished; DeadlineExpired, GroupCut or GroupError, each closes the group."""
        group = self._group
        seconds = group.within if within is None else within
        error: GroupError | None = None
        try:
            group.attend(self.done, Deadline(seconds, f"{self.op} on {self._label}", cancelled))
        except GroupError as found:
            error = found
            raise
        finally:
            self._work = None
            group.watch.after(self._label, self.op, error)


class NcclGroup:
    """A communicator of `size` members; collectives are queued behind the current stream and order it, too.

    After the first error, deadline or cut the communicator is aborted, which frees the device, and every call raises.
    """

    device = "cuda"

    def __init__(
        self,
        label: str,
        backend: Any,
        rank: int,
        size: int,
        *,
        wires: NcclWires,
        reaper: Reaper,
        watch: Watch,
        within: float,
    ) -> None:
        self.label, self.rank, self.size, self.watch, self.within = label, rank, size, watch, within
        self.gbs = 0.0  # the best rate at which rows have come, GB/s; 0 while none have
        self._backend = backend
        self._reaper = reaper
        self._ended: GroupError | None = None
        self._held: list[Releasable] = []
        self._lock = threading.Lock()

    # -- queued and ordered by the current stream --------------------------------------------------------------

    def all_gather(self, out: Tensor, t: Tensor) -> None:
        """Queue: gather `t` [n, ...] of every rank into `out` [size * n, ...]."""
        self._queue("all_gather", lambda raw: raw._allgather_base(out, t))

    def reduce_scatter(self, out: Tensor, t: Tensor) -> None:
        """Queue: sum `t` [size * n, ...] over all ranks; this rank keeps its n rows in `out`."""
        self._queue("reduce_scatter", lambda raw: raw._reduce_scatter_base(out, t))

    def all_reduce(self, t: Tensor, op: str = "sum", within: float | None = None) -> None:
        """Queue: sum `t` in place."""
        self._queue("all_reduce", lambda raw: raw.allreduce([t]))

    # -- posted on the side: the current stream goes on --------------------------------------------------------

    def post_all_gather(self, out: Tensor, t: Tensor) -> NcclPending:
        """Issue an all_gather beside the current stream."""
        return self._post("all_gather", (out, t), lambda raw: raw._allgather_base(out, t))

    def post_reduce_scatter(self, out: Tensor, t: Tensor) -> NcclPending:
        """Issue a reduce_scatter beside the current stream."""
        return self._post("reduce_scatter", (out, t), lambda raw: raw._reduce_scatter_base(out, t))

    def post_rows(self, incoming: Sequence[tuple[Tensor, int]], outgoing: Sequence[tuple[Tensor, int]]) -> NcclPending:
        """Issue all sends and receives (tensor, peer) as one grouped operation beside the current stream.

        The first one between two ranks connects them and blocks until both are here: never in a rehearsal, where one
        side posts before the other may.
        """

        def call(raw: Any) -> Any:
            raw._start_coalescing()
            for tensor, peer in outgoing:
                raw.send([tensor], peer, 0)
            for tensor, peer in incoming:
                raw.recv([tensor], peer, 0)
            return raw._end_coalescing()

        if not incoming and not outgoing:
            return NcclPending(self, "rows", None, ())
        return self._post("rows", [tensor for tensor, _ in (*incoming, *outgoing)], call)

    def timed_rows(
        self, incoming: Sequence[tuple[Tensor, int]], outgoing: Sequence[tuple[Tensor, int]]
    ) -> tuple[NcclPending, Callable[[], None]]:
        """As `post_rows`, and what notes the rate once it has been waited for."""
        nbytes = sum(tensor.nbytes for tensor, _ in incoming)
        stream = _timing.get()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            begin.record()
            pending = self.post_rows(incoming, outgoing)
            pending.order()
            end.record()

        def note() -> None:
            if nbytes >= WORTH_TIMING:
                end.synchronize()
                self.gbs = max(self.gbs, nbytes / max(float(begin.elapsed_time(end)), 1e-3) / 1e6)

        return pending, note

    # -- graphs ------------------------------------------------------------------------------------------------

    @property
    def raw(self) -> Any:
        """The backend, for a capture; raises when the group has ended."""
        self.check()
        return self._backend

    def hold(self, captured: Releasable) -> None:
        """Release `captured` before this group's communicator."""
        with self._lock:
            self._held.append(captured)

    # -- the end -----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether calls are still possible."""
        return self._ended is None

    @property
    def pending(self) -> int:
        """Posted operations are not counted here."""
        return 0

    def whole(self) -> bool:
        """Whether the group has not ended."""
        return self.alive

    def check(self) -> None:
        """Raise GroupCut or GroupError if the group has ended."""
        ended = self._ended
        if ended is not None:
            kind = GroupCut if isinstance(ended, GroupCut) else GroupError
            raise kind(f"{self.label} is closed: {ended}")

    def attend(self, done: Callable[[], bool], deadline: Deadline) -> None:
        """Look until the device has done something; an end of the group, an error or the deadline ends the wait."""
        try:
            while not done():
                self.check()
                deadline.slice()
                time.sleep(LOOK)
            self.check()
        except GroupError as error:
            self.close(error)
            raise
        except RuntimeError as error:
            failure = GroupError(f"{deadline.what} failed: {(str(error).splitlines() or [''])[0]}")
            self.close(failure)
            raise failure from None

    def cut(self, reason: str) -> None:
        """Abort from another thread; does not block, idempotent."""
        self.close(GroupCut(reason))

    def close(self, error: GroupError) -> None:
        """End the group: what was captured is released, the communicator aborted, both in a thread of the reaper's."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = error
            backend, self._backend = self._backend, None
            held, self._held = self._held, []
        ending = threading.Thread(target=_end, args=(backend, held), name=f"abort {self.label}", daemon=True)
        ending.start()
        self._reaper.take(self.label, lambda: not ending.is_alive(), [backend, held])

    def _queue(self, op: str, call: Callable[[Any], Any]) -> None:
        self.check()
        self.watch.before(self.label, op)
        self._issue(op, call).wait()
        self.watch.after(self.label, op, None)

    def _post(self, op: str, tensors: Sequence[Tensor], call: Callable[[Any], Any]) -> NcclPending:
        self.check()
        self.watch.before(self.label, op)
        return NcclPending(self, op, self._issue(op, call), tensors)

    def _issue(self, op: str, call: Callable[[Any], Any]) -> Any:
        backend = self._backend
        try:
            self.check()
            return call(backend)
        except RuntimeError as error:
            failure = GroupError(f"{op} on {self.label} failed: {(str(error).splitlines() or [''])[0]}")
            self.close(failure)
            self.watch.after(self.label, op, failure)
            raise failure from None


def _abort(backend: Any) -> None:
    with suppress(RuntimeError):  # it has ended by itself
        backend.abort()


def _end(backend: Any, held: Sequence[Releasable]) -> None:
    for captured in held:
        captured.release()
    _abort(backend)
    torch.cuda.empty_cache()  # the memory of the graphs goes back, so that the next generation finds it
