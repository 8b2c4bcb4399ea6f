"""CUDA graphs of the padded step: captured for a coming generation beside serving, replayed once it is active."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from ..nccl import NcclGroup
from ..streams import Once
from .kv_cache import KVCache
from .model import Model
from .padded import PaddedInputs, PaddedOutputs, padded_step
from .routing import ExpertRouting

# One capture at a time, by the main loop or by the background thread. cuBLAS has memory for each stream of a thread and
# a graph keeps that of the stream on which it was recorded: nothing may run on that one beside its replays.
_capturing, _trying = Once(), Once()


class _Alone:
    """An exchange of the right shapes that moves nothing: kernels are loaded with it before a capture."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def dispatch(self, packed: Tensor) -> Tensor:
        return packed.repeat(self.world_size, 1)

    def combine(self, partial: Tensor) -> Tensor:
        return partial[: len(partial) // self.world_size].clone()


class _Queued:
    """The exchange that is captured: the group's own collectives, unwatched, because they are only recorded."""

    def __init__(self, group: NcclGroup) -> None:
        self._raw = group.raw
        self.rank, self.world_size = group.rank, group.size

    def dispatch(self, packed: Tensor) -> Tensor:
        out = packed.new_empty(self.world_size * packed.shape[0], packed.shape[1])
        self._raw._allgather_base(out, packed).wait()
        return out

    def combine(self, partial: Tensor) -> Tensor:
        out = partial.new_empty(partial.shape[0] // self.world_size, partial.shape[1])
        self._raw._reduce_scatter_base(out, partial).wait()
        return out


class StepGraph:
    """The padded step on one group as a graph; `replay` queues it on the current stream.

    Inputs, outputs, weights, cache and routing tables are those of the engine, at the same addresses for every
    generation; only intermediate results are the graph's own (a private pool, `nbytes` of it). It belongs to the
    group, which releases it before its communicator is aborted.
    """

    def __init__(self, group: NcclGroup) -> None:
        self.group = group
        self.nbytes = 0
        self._graph: Any = None
        self._lock = threading.Lock()
        group.hold(self)

    def capture(
        self, model: Model, inputs: PaddedInputs, outputs: PaddedOutputs, cache: KVCache, routing: ExpertRouting
    ) -> None:
        """Record the step; any thread with a stream of its own, beside replays of other graphs. Touches no peer.

        The kernels run once before, on inputs that are all padding, without the group: nothing is loaded while
        recording. Nothing here waits for the device as a whole.
        """
        self._try(model, inputs, outputs, cache, routing)
        stream = _capturing.get()
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            # The memory of cuBLAS is not to be this graph's, which ends before the next one.
            torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
            before = torch.cuda.memory_reserved()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                padded_step(model, inputs, outputs, cache, routing, _Queued(self.group))
            finally:
                graph.capture_end()
        self.nbytes = max(0, torch.cuda.memory_reserved() - before)
        with self._lock:
            self._graph = graph

    def _try(
        self, model: Model, inputs: PaddedInputs, outputs: PaddedOutputs, cache: KVCache, routing: ExpertRouting
    ) -> None:
        """Run the step once, on inputs of its own that are filled on the same stream; blocks until it has ended."""
        stream = _trying.get()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            blank = PaddedInputs(inputs.rows, inputs.blocks, inputs.scratch, model.device)
            layers, experts = outputs.load.shape
            spare = PaddedOutputs(inputs.rows, layers, experts, model.device)
            padded_step(model, blank, spare, cache, routing, _Alone(self.group.rank, self.group.size))
            stream.synchronize()

    @property
    def ready(self) -> bool:
        """Whether it can be replayed."""
        return self._graph is not None and self.group.alive

    def replay(self, layers: int) -> None:
        """Queue the step; the group's watch hears of every collective in it, of the first before it is issued."""
        group = self.group
        group.check()
        group.watch.before(group.label, "all_gather")
        with self._lock:
            if self._graph is None:
                group.check()
            self._graph.replay()
        names = ["all_gather", "reduce_scatter"] * layers
        for number, op in enumerate(names):
            if number:
                group.watch.before(group.label, op)
            group.watch.after(group.label, op, None)

    def release(self) -> None:
        """Free the graph and its pool; idempotent, any thread."""
        with self._lock:
            graph, self._graph = self._graph, None
        if graph is not None:
            graph.reset()
