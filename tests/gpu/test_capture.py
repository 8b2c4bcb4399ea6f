"""A step that is tried and captured beside replays of another one changes no token of theirs."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
import torch

from elasticfsm.runtime.creation import Limits
from elasticfsm.runtime.engine.request import Request
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.models import PSALTER
from elasticfsm.runtime.store import StoreServer
from elasticfsm.runtime.streams import own_stream

pytestmark = pytest.mark.gpu
STEPS, REQUESTS = 120, 12


def served(main, side, captures: bool) -> tuple[dict[str, list[int]], int]:
    """Tokens of some requests on one engine, and how many captures there were meanwhile in another thread."""
    from elasticfsm.runtime.engine.graphs import StepGraph
    from elasticfsm.runtime.engine.on_gpu import GpuCore

    with contextlib.closing(StoreServer()) as store, torch.cuda.stream(main):
        groups = Groups(store.address, limits=Limits(connect=60.0), backend="nccl")
        groups.plan("op", 1, ["e0"], "e0")
        groups.create("active")
        active = groups.need("active")
        core = GpuCore(PSALTER, 16, 16, dtype=torch.float32)
        core.load([range(16)] * 4, 0)
        core.allocate_cache(256)
        for layer in range(4):
            core.set_routing(layer, np.arange(16))
        requests = [Request(f"r{n}", [5 + n, 80, 40 + n, 7] * (1 + n % 3), 100) for n in range(REQUESTS)]
        for request in requests:
            core.submit(request)
        ended, made = threading.Event(), []

        def capture() -> None:
            with torch.cuda.stream(side):
                while captures and not ended.is_set():
                    junk = torch.full((1 << 20,), 1 << 40, dtype=torch.int64, device="cuda")
                    del junk  # what is read before it is filled is no index of anything
                    graph = StepGraph(active.ep)
                    graph.capture(core.model, core._inputs, core._outputs, core.cache, core.routing_for(1))
                    made.append(graph)
                    graph.release()

        core.step(active, 60.0)
        thread = threading.Thread(target=capture)
        thread.start()
        for _ in range(STEPS):
            core.step(active, 60.0)
        ended.set()
        thread.join(60)
        torch.cuda.synchronize()
        groups.close_all(10)
        return {request.id: list(request.generated) for request in requests}, len(made)


def test_captures_beside_replays_change_no_token():
    main, side = own_stream(), own_stream()
    alone, _ = served(main, side, captures=False)
    beside, made = served(main, side, captures=True)
    assert made >= 3
    assert all(len(tokens) == 100 for tokens in alone.values())
    assert beside == alone
