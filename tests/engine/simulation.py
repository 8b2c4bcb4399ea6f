"""Engines of one expert-parallel group as threads of the test: the exchange is a barrier and a shared list."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from elasticfsm.runtime.engine import (
    BlockPool,
    Checkpoint,
    ExpertExchange,
    ExpertRouting,
    KVCache,
    LocalExchange,
    Model,
    Request,
    Scheduler,
    StepResult,
    TokenEvent,
    run_step,
)
from elasticfsm.runtime.engine.tokenizer import encode
from elasticfsm.runtime.models import PSALTER

TIMEOUT_S = 60.0

PROMPTS = [
    "And the LORD said unto ",
    "In the beginning ",
    "def main(",
    "    for name in ",
    "class Server(object):\n    def ",
    "And it came to pass, when the king of Israel heard the words of the book, that he ",
]


class ThreadGroup:
    """An all-gather and a reduce-scatter between threads, summed in rank order."""

    def __init__(self, world_size: int) -> None:
        self.barrier = threading.Barrier(world_size, timeout=TIMEOUT_S)
        self.posted: list[Tensor] = [torch.empty(0)] * world_size

    def swap(self, rank: int, tensor: Tensor) -> list[Tensor]:
        self.posted[rank] = tensor
        self.barrier.wait()
        posted = list(self.posted)
        self.barrier.wait()
        return posted


class ThreadExchange:
    """One rank's side of a ThreadGroup."""

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self.group, self.rank, self.world_size = group, rank, len(group.posted)
        self.shapes: list[tuple[int, ...]] = []

    def dispatch(self, packed: Tensor) -> Tensor:
        self.shapes.append(tuple(packed.shape))
        return torch.cat(self.group.swap(self.rank, packed))

    def combine(self, partial: Tensor) -> Tensor:
        self.shapes.append(tuple(partial.shape))
        parts = self.group.swap(self.rank, partial)
        rows = len(partial) // len(parts)
        return torch.stack([part[self.rank * rows : (self.rank + 1) * rows] for part in parts]).sum(dim=0)


class Engine:
    """One rank with a model, psalter by default, and a scheduler of its own."""

    def __init__(
        self,
        placement: Sequence[Sequence[int]] | None = None,
        rank: int = 0,
        world_size: int = 1,
        exchange: ExpertExchange | None = None,
        max_tokens: int = 64,
        blocks: int = 256,
        directory: Path = PSALTER,
    ) -> None:
        checkpoint = Checkpoint(directory)
        config = checkpoint.config
        table = placement or [list(range(config.num_experts))] * config.num_hidden_layers
        slots = len(table[0]) // world_size
        self.model = Model.allocate(config, slots, max_tokens)
        self.model.load_non_experts(checkpoint)
        self.model.load_experts([row[rank * slots : (rank + 1) * slots] for row in table], checkpoint)
        self.cache = KVCache.allocate(config, blocks)
        self.scheduler = Scheduler(BlockPool(blocks), max_tokens, config.max_position_embeddings, config.vocab_size)
        self.routing = ExpertRouting(config.num_experts, slots, table)
        self.exchange: ExpertExchange = exchange or LocalExchange()

    def step(self) -> StepResult:
        return run_step(self.model, self.scheduler, self.cache, self.routing, self.exchange)

    def drain(self) -> list[TokenEvent]:
        """Step until no request is left."""
        events = []
        while self.scheduler.has_work:
            events += self.step().events
        return events


def request(number: int, new_tokens: int = 40) -> Request:
    return Request(f"r{number}", encode(PROMPTS[number % len(PROMPTS)]), new_tokens, (0,))


def streams(requests: Sequence[Request]) -> list[tuple[list[int], list[int]]]:
    return [(request.prompt, request.generated) for request in requests]


def group_of_engines(placement: Sequence[Sequence[int]], world_size: int, max_tokens: int = 16) -> list[Engine]:
    group = ThreadGroup(world_size)
    return [Engine(placement, rank, world_size, ThreadExchange(group, rank), max_tokens) for rank in range(world_size)]


def run_together(engines: Sequence[Engine], steps: int) -> list[list[StepResult]]:
    """STEPS steps of all engines, each in a thread; one that fails breaks the barrier, so that none waits for it."""

    def body(engine: Engine) -> list[StepResult]:
        try:
            return [engine.step() for _ in range(steps)]
        except BaseException:
            if isinstance(engine.exchange, ThreadExchange):
                engine.exchange.group.barrier.abort()
            raise

    with ThreadPoolExecutor(len(engines)) as pool:
        return list(pool.map(body, engines))
