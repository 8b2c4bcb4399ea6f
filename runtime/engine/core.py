"""What one engine process holds: model, routing of experts, KV cache and requests; groups are given to it per step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elasticfsm.errors import ModelError

from .config import ModelConfig
from .exchange import ExpertExchange
from .generated import open_checkpoint
from .kv_cache import BLOCK_SIZE, BlockPool, KVCache, block_bytes
from .model import DEFAULT_MAX_TOKENS, Model
from .request import Request
from .routing import ExpertRouting, IntArray
from .scheduler import Scheduler
from .step import StepResult, run_step


class EngineCore:
    """One engine without its communication. Owned by the main loop; all calls come from there, between two steps.

    Life of an engine: construct; fill the weights, by `load` or from a peer into `model.storage`; `allocate_cache` with
    the agreed number of blocks; install a placement through `set_routing`; then `submit` and `forward` for ever.
    `slot_tensors`, `set_routing` and `take_loads` are what the rebalancing of experts works on.
    """

    spare_blocks = 0  # cache blocks that are never handed out

    def __init__(
        self,
        directory: Path | str,
        slots_per_rank: int,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Read the config and allocate; raises ModelError when DIRECTORY holds no model for this engine."""
        self.directory = Path(directory)
        self.config = ModelConfig.read(directory)
        self.model = Model.allocate(self.config, slots_per_rank, max_tokens, dtype, device)
        self.routing = ExpertRouting(self.config.num_experts, slots_per_rank, device=device)
        self.cache: KVCache | None = None
        self.scheduler = self._scheduler(0)
        self._loads = self._no_loads()

    # -- weights and experts -----------------------------------------------------------------------------------

    def load(self, physical_to_logical: IntArray | Sequence[Sequence[int]], rank: int) -> None:
        """Fill all weights from the checkpoint: RANK's slots of an int [layers, world_size * slots_per_rank]."""
        slots = self.model.slots_per_rank
        own = np.asarray(physical_to_logical)[:, rank * slots : (rank + 1) * slots]
        checkpoint = open_checkpoint(self.directory, self.config)
        self.model.load_non_experts(checkpoint)
        self.model.load_experts(own.tolist(), checkpoint)

    def slot_tensors(self, layer: int, slot: int) -> list[Tensor]:
        """The memory of one local slot: [gate_up, down], contiguous views whose addresses never change."""
        return self.model.expert_slot(layer, slot)

    def set_routing(self, layer: int, physical_to_logical: IntArray) -> None:
        """Route LAYER by int [world_size * slots_per_rank] from the next step on; PlacementError changes nothing."""
        self.routing.set_layer(layer, physical_to_logical)

    def take_loads(self) -> Tensor:
        """Own tokens sent to each expert since the last call, int64 [layers, experts]; counting starts anew."""
        loads, self._loads = self._loads, self._no_loads()
        return loads

    # -- the cache ---------------------------------------------------------------------------------------------

    def blocks_for(self, memory_bytes: int) -> int:
        """How many cache blocks fit into MEMORY_BYTES: what this engine proposes to the others."""
        return memory_bytes // block_bytes(self.config, dtype=self.model.dtype)

    def allocate_cache(self, blocks: int) -> None:
        """Allocate the KV cache, once, before the first request."""
        if blocks < 1 or self.cache is not None:
            raise ModelError(f"cannot allocate a cache of {blocks} blocks; expected at least 1, once per engine")
        total = blocks + self.spare_blocks
        self.cache = KVCache.allocate(self.config, total, device=self.model.device, dtype=self.model.dtype)
        self.scheduler = self._scheduler(blocks)

    # -- requests ----------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Take a request, new or handed over; RequestRefused when it can never be served here.

        One that is here already under an older owner epoch is replaced: its router has given up on that one.
        """
        known = self.scheduler.find(request.id)
        if known is not None and known.epoch < request.epoch:
            self.scheduler.stop_request(request.id)
        self.scheduler.add(request)

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return self.scheduler.has_work

    # -- the forward step --------------------------------------------------------------------------------------

    def forward(self, exchange: ExpertExchange) -> StepResult:
        """One step, with or without requests; all ranks of EXCHANGE enter it together. Blocks.

        An error of the group passes through; no request has changed then.
        """
        if self.cache is None:
            raise ModelError("the engine has no KV cache yet; agree on its size and allocate it before the first step")
        result = run_step(self.model, self.scheduler, self.cache, self.routing, exchange)
        self._loads += result.expert_load
        return result

    def _scheduler(self, blocks: int) -> Scheduler:
        pool = BlockPool(blocks, BLOCK_SIZE)
        return Scheduler(pool, self.model.max_tokens, self.config.max_position_embeddings, self.config.vocab_size)

    def _no_loads(self) -> Tensor:
        shape = self.config.num_hidden_layers, self.config.num_experts
        return torch.zeros(shape, dtype=torch.int64, device=self.model.device)
