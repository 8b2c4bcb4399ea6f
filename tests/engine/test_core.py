"""An engine core over a real process group: steps, growth of the group between two steps, replaced requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import HashStore, PrefixStore, ProcessGroupGloo

from elasticfsm.errors import ElasticError, ModelError, PlacementError
from elasticfsm.runtime.engine import EngineCore, GroupExchange, LocalExchange, Request, check_tokens
from elasticfsm.runtime.models import PSALTER

from .simulation import request, streams

SLOTS, LAYERS, EXPERTS = 16, 4, 16


class GlooGroup:
    """The two collectives an engine needs, over gloo."""

    def __init__(self, store: Any, name: str, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.backend: Any = ProcessGroupGloo(PrefixStore(name, store), rank, size, timedelta(seconds=30))

    def all_gather(self, out: Tensor, t: Tensor) -> None:
        self.backend._allgather_base(out, t).wait()

    def reduce_scatter(self, out: Tensor, t: Tensor) -> None:
        self.backend._reduce_scatter_base(out, t).wait()


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(call) for call in calls]]


def exchanges(size: int) -> list[GroupExchange]:
    store = HashStore()
    groups = in_threads([partial(GlooGroup, store, str(size), rank, size) for rank in range(size)])
    return [GroupExchange(group) for group in groups]


def placement(size: int, holders: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The first HOLDERS of SIZE ranks hold all experts in turn, half the slots of each; others hold none."""
    rows = np.full((LAYERS, size, SLOTS), -1, dtype=np.int32)
    for rank in range(holders):
        rows[:, rank, : SLOTS // 2] = (rank * SLOTS // 2 + np.arange(SLOTS // 2)) % EXPERTS
    return rows.reshape(LAYERS, -1)


def core(rows: np.ndarray[Any, np.dtype[np.int32]], rank: int) -> EngineCore:
    made = EngineCore(PSALTER, SLOTS, max_tokens=16)
    made.load(rows, rank)
    made.allocate_cache(128)
    install(made, rows)
    return made


def install(engine: EngineCore, rows: np.ndarray[Any, np.dtype[np.int32]]) -> None:
    for layer, row in enumerate(rows):
        engine.set_routing(layer, row)


def steps(engines: Sequence[EngineCore], over: Sequence[GroupExchange], count: int) -> None:
    def body(engine: EngineCore, exchange: GroupExchange) -> None:
        for _ in range(count):
            engine.forward(exchange)

    in_threads([partial(body, *pair) for pair in zip(engines, over, strict=True)])


def test_tokens_stay_right_while_the_group_grows_and_shrinks_between_two_steps() -> None:
    two, three = exchanges(2), exchanges(3)
    engines = [core(placement(2, 2), rank) for rank in range(2)]
    requests = [request(number, 30) for number in range(4)]
    for number, one in enumerate(requests[:3]):
        engines[number % 2].submit(one)
    steps(engines, two, 8)
    joined = core(placement(3, 2), 2)
    for engine in engines:
        install(engine, placement(3, 2))
    joined.submit(requests[3])
    steps([*engines, joined], three, 8)
    for moved in joined.scheduler.evict_all():
        moved.epoch += 1
        engines[0].submit(moved)
    for engine in engines:
        install(engine, placement(2, 2))
    steps(engines, two, 40)
    assert all(one.finished for one in requests)
    assert check_tokens(PSALTER, streams(requests)) == []


def test_loads_are_counted_since_they_were_last_taken() -> None:
    engine = core(np.tile(np.arange(EXPERTS, dtype=np.int32), (LAYERS, 1)), 0)
    engine.submit(request(0, 3))
    tokens = sum(engine.forward(LocalExchange()).tokens for _ in range(2))
    assert engine.take_loads().sum(dim=1).tolist() == [2 * tokens] * LAYERS
    assert not engine.take_loads().any()


def test_a_request_of_a_newer_epoch_replaces_the_old_one() -> None:
    engine = core(np.tile(np.arange(EXPERTS, dtype=np.int32), (LAYERS, 1)), 0)
    engine.submit(Request("a", [65, 66], 5, epoch=1))
    engine.submit(Request("a", [65, 66], 5, epoch=2, generated=[67]))
    events = engine.forward(LocalExchange()).events
    assert [(event.epoch, event.index) for event in events] == [(2, 1)]
    with pytest.raises(ElasticError, match="same id"):
        engine.submit(Request("a", [65, 66], 5, epoch=2))


def test_a_step_before_the_engine_is_ready_is_refused() -> None:
    engine = EngineCore(PSALTER, SLOTS)
    with pytest.raises(ModelError, match="no KV cache"):
        engine.forward(LocalExchange())
    with pytest.raises(ModelError, match="0 blocks"):
        engine.allocate_cache(0)
    engine.allocate_cache(4)
    with pytest.raises(PlacementError, match="placed on 0 ranks, the group has 1"):
        engine.forward(LocalExchange())
    with pytest.raises(ElasticError, match="exceeds 64"):
        engine.submit(Request("a", [65] * 60, 5))


def test_cache_blocks_are_counted_by_their_bytes() -> None:
    engine = EngineCore(PSALTER, SLOTS)
    engine.allocate_cache(7)
    assert engine.cache is not None
    size = engine.cache.keys.nbytes + engine.cache.values.nbytes
    assert (engine.blocks_for(size), engine.blocks_for(size - 1)) == (7, 6)
    assert engine.cache.keys.dtype == torch.float32
