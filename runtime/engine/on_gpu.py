"""An engine core on a GPU: steps are replayed from a graph, tokens come by one late copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elasticfsm.errors import ModelError

from ..deadline import Cancelled, Deadline
from ..groups import Generation
from ..nccl import NcclGroup
from .batch import build_batch
from .core import EngineCore
from .exchange import ExpertExchange, GroupExchange
from .graphs import StepGraph
from .padded import PaddedInputs, PaddedOutputs, refuse_inexact
from .routing import ExpertRouting, IntArray
from .scheduler import Chunk
from .step import StepResult

GRAPH_CONTEXT = 512  # tokens of context that a captured step can see; longer requests run eagerly


class GpuCore(EngineCore):
    """An EngineCore in VRAM, bfloat16 by default.

    One routing table per number of ranks, at addresses that never change: a graph captured for a size that does not
    serve yet refers to the table that `set_routing` will fill at the switch.
    """

    spare_blocks = 1  # for padding

    def __init__(
        self,
        directory: Path | str,
        slots_per_rank: int,
        max_tokens: int,
        *,
        device: str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
        graphs: bool = True,
    ) -> None:
        self._graphs: dict[NcclGroup, StepGraph] = {}
        self._routings: dict[int, ExpertRouting] = {}
        self._use_graphs = graphs
        super().__init__(directory, slots_per_rank, max_tokens, device=device, dtype=dtype)
        refuse_inexact(self.config.num_experts, dtype)
        self.replayed = self.eager = 0
        self._warm = False
        self._sampled = torch.zeros(max_tokens, dtype=torch.int64, pin_memory=device != "cpu")
        self._fetched_load = torch.zeros(
            self.config.num_hidden_layers, self.config.num_experts, dtype=torch.int64, pin_memory=device != "cpu"
        )
        self._inputs: PaddedInputs | None = None
        layers, experts = self.config.num_hidden_layers, self.config.num_experts
        self._outputs = PaddedOutputs(max_tokens, layers, experts, self.model.device)

    def allocate_cache(self, blocks: int) -> None:
        """Allocate the cache, and the inputs of captured steps."""
        super().allocate_cache(blocks)
        context = min(GRAPH_CONTEXT, self.config.max_position_embeddings)
        width = -(-context // self.scheduler.pool.block_size)
        self._inputs = PaddedInputs(self.model.max_tokens, width, blocks, self.model.device)

    def routing_for(self, world_size: int) -> ExpertRouting:
        """The routing of generations of that many ranks; its tables exist before a placement does."""
        if world_size not in self._routings:
            routing = ExpertRouting(self.config.num_experts, self.model.slots_per_rank, device=self.model.device)
            routing.reserve(self.config.num_hidden_layers, world_size)
            self._routings[world_size] = routing
        found: ExpertRouting = self._routings[world_size]
        return found

    def set_routing(self, layer: int, physical_to_logical: IntArray) -> None:
        """Route LAYER in generations of the size that the placement is for."""
        self.routing_for(len(physical_to_logical) // self.model.slots_per_rank).set_layer(layer, physical_to_logical)

    def take_loads(self) -> Tensor:
        """Own tokens sent to each expert in the last step, which brought them along with its tokens."""
        return self._fetched_load.clone()

    # -- graphs ------------------------------------------------------------------------------------------------

    def prepare(self, generation: Generation, cancelled: Cancelled = None) -> StepGraph | None:
        """Capture the step of a generation, beside steps of another one; None when graphs are not wanted."""
        group, inputs, cache = generation.ep, self._inputs, self.cache
        if not self._use_graphs or not isinstance(group, NcclGroup):
            return None
        if inputs is None or cache is None:
            raise ModelError("the engine has no KV cache yet; agree on its size before graphs are captured")
        self._graphs = {one: graph for one, graph in self._graphs.items() if one.alive}
        self._warm_up(group.size)
        graph = StepGraph(group)
        graph.capture(self.model, inputs, self._outputs, cache, self.routing_for(group.size))
        self._graphs[group] = graph
        return graph

    def step(self, generation: Generation, within: float) -> StepResult:
        """One forward step with a generation's groups; blocks until the tokens are here or the group has ended."""
        group = generation.ep
        if not isinstance(group, NcclGroup):
            return self.forward(GroupExchange(group))
        if self._use_graphs and group not in self._graphs:
            self.prepare(generation)  # the first generation: nobody serves yet
        chunks = self.scheduler.schedule()
        graph = self._graphs.get(group)
        if graph is not None and graph.ready and self._inputs is not None and self._inputs.fits(chunks):
            rows, wanted = self._replay(graph, chunks)
        else:
            rows = self._eagerly(GroupExchange(group), chunks)
            wanted = list(range(len(rows)))
        found = self._fetch(rows, group, within)
        events = self.scheduler.commit(chunks, [found[row] for row in wanted])
        return StepResult(events, sum(chunk.count for chunk in chunks), self._outputs.load)

    def forward(self, exchange: ExpertExchange) -> StepResult:
        """One eager step on a given exchange."""
        chunks = self.scheduler.schedule()
        rows = self._eagerly(exchange, chunks)
        self._fetched_load.copy_(self._outputs.load)
        self._outputs.load.zero_()
        events = self.scheduler.commit(chunks, rows.tolist())
        return StepResult(events, sum(chunk.count for chunk in chunks), self._outputs.load)

    def _warm_up(self, world_size: int) -> None:
        """Do once, before the first step, what a step and a switch do besides kernels: pinned memory, late copies."""
        if self._warm:
            return
        self._warm = True
        experts, slots = self.config.num_experts, self.model.slots_per_rank * world_size
        spare = ExpertRouting(experts, self.model.slots_per_rank, device=self.model.device)
        spare.set_layer(0, np.arange(slots) % experts)
        into = torch.zeros(self._sampled.shape, dtype=torch.int64, pin_memory=True)
        into.copy_(torch.zeros_like(self._outputs.tokens), non_blocking=True)
        torch.cuda.current_stream().synchronize()

    # -- inside ------------------------------------------------------------------------------------------------

    def _replay(self, graph: StepGraph, chunks: Sequence[Chunk]) -> tuple[Tensor, list[int]]:
        if self._inputs is None:
            raise ModelError("the engine has no KV cache yet")
        sampled = self._inputs.fill(chunks)
        graph.replay(len(self.model.layers))
        self.replayed += 1
        rows = self._outputs.tokens
        return rows, sampled

    def _eagerly(self, exchange: ExpertExchange, chunks: Sequence[Chunk]) -> Tensor:
        if self.cache is None:
            raise ModelError("the engine has no KV cache yet; agree on its size and allocate it before the first step")
        batch = build_batch(chunks, self.config, self.cache.block_size, self.model.device)
        routing = self.routing_for(exchange.world_size)
        logits, load = self.model.forward(batch, self.cache, routing, exchange)
        self._outputs.load += load
        self.eager += 1
        return logits.argmax(dim=-1)

    def _fetch(self, rows: Tensor, group: NcclGroup, within: float) -> list[int]:
        """The step's tokens, its loads beside them; the host looks at an event: a peer's death can end the wait."""
        target = self._sampled[: len(rows)]
        target.copy_(rows, non_blocking=True)
        self._fetched_load.copy_(self._outputs.load, non_blocking=True)
        self._outputs.load.zero_()
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        group.attend(event.query, Deadline(within, f"forward step on {group.label}"))
        sampled: list[int] = target.tolist()
        return sampled
