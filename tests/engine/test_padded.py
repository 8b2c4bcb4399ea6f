"""The padded step, which a GPU captures, computes what the eager step does; on a CPU both run in float32."""

from __future__ import annotations

import pytest
import torch

from elasticfsm.errors import ModelError
from elasticfsm.runtime.engine import LocalExchange, Request
from elasticfsm.runtime.engine.grouped import run_dense_experts, run_grouped_experts
from elasticfsm.runtime.engine.moe import run_local_experts
from elasticfsm.runtime.engine.on_gpu import GpuCore
from elasticfsm.runtime.engine.padded import PaddedInputs, PaddedOutputs, padded_step, refuse_inexact
from elasticfsm.runtime.models import PSALTER


def core(max_tokens: int = 16) -> GpuCore:
    made = GpuCore(PSALTER, 16, max_tokens, device="cpu", dtype=torch.float32)
    made.load([range(16)] * 4, 0)
    made.allocate_cache(64)
    for layer in range(4):
        made.set_routing(layer, torch.arange(16).numpy())
    return made


def served(engine: GpuCore, steps: int, padded: bool) -> dict[str, list[int]]:
    requests = [Request(f"r{n}", [5 + n, 80, 40 + n, 7] * (1 + 3 * n), 20) for n in range(5)]
    for request in requests:
        engine.submit(request)
    device = torch.device("cpu")
    inputs, outputs = PaddedInputs(16, 64, 64, device), PaddedOutputs(16, 4, 16, device)
    for _ in range(steps):
        chunks = engine.scheduler.schedule()
        if padded and chunks and inputs.fits(chunks):
            rows = inputs.fill(chunks)
            padded_step(engine.model, inputs, outputs, engine.cache, engine.routing_for(1), LocalExchange())
            engine.scheduler.commit(chunks, [outputs.tokens[row].item() for row in rows])
        else:
            sampled = engine._eagerly(LocalExchange(), chunks).tolist()
            engine.scheduler.commit(chunks, sampled)
    return {request.id: request.generated for request in requests}


def test_a_padded_step_gives_the_tokens_of_an_eager_step():
    eager, padded = served(core(), 35, False), served(core(), 35, True)
    assert eager == padded
    assert all(len(tokens) == 20 for tokens in padded.values())


def test_padding_is_not_counted_as_load():
    engine = core()
    engine.submit(Request("r", [5, 80, 40], 4))
    inputs, outputs = PaddedInputs(16, 8, 64, torch.device("cpu")), PaddedOutputs(16, 4, 16, torch.device("cpu"))
    engine.scheduler.commit(*_one_eager(engine))
    inputs.fill(engine.scheduler.schedule())
    padded_step(engine.model, inputs, outputs, engine.cache, engine.routing_for(1), LocalExchange())
    assert outputs.load.sum(dim=1).tolist() == [2, 2, 2, 2]


def test_padding_touches_no_block_of_a_request():
    engine = core()
    inputs, outputs = PaddedInputs(16, 8, 64, torch.device("cpu")), PaddedOutputs(16, 4, 16, torch.device("cpu"))
    inputs.fill(())
    padded_step(engine.model, inputs, outputs, engine.cache, engine.routing_for(1), LocalExchange())
    assert not engine.cache.keys[:, :64].any()
    assert engine.cache.keys[:, 64].any()


@pytest.mark.parametrize("run", [run_dense_experts, run_grouped_experts])
def test_fixed_shapes_give_what_the_loop_gives(run):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(12, 32, generator=generator)
    gate_up, down = torch.randn(5, 48, 32, generator=generator), torch.randn(5, 32, 24, generator=generator)
    slots = torch.stack([torch.randperm(11, generator=generator)[:3] - 2 for _ in range(12)])
    weights = torch.rand(12, 3, generator=generator)
    unused = sorted(set(range(5)) - set(slots[:2].flatten().tolist()))
    assert unused
    gate_up[unused], slots = float("nan"), torch.where(torch.isin(slots, torch.tensor(unused)), -1, slots)
    one = run_local_experts(hidden, weights, slots, gate_up, down)
    torch.testing.assert_close(run(hidden, weights, slots, gate_up, down), one, rtol=1e-5, atol=1e-3)


def test_tables_of_a_coming_size_keep_their_addresses_when_they_are_filled():
    engine = core()
    before = [table.data_ptr() for table in engine.routing_for(2)._replicas.values()]
    for layer in range(4):
        engine.set_routing(layer, torch.arange(32).numpy() % 16)
    assert [table.data_ptr() for table in engine.routing_for(2)._replicas.values()] == before
    assert engine.routing_for(1).world_size(0) == 1


def test_expert_ids_that_a_float_cannot_hold_are_refused():
    with pytest.raises(ModelError, match="257 experts cannot be told apart"):
        refuse_inexact(257, torch.bfloat16)
    refuse_inexact(256, torch.bfloat16)


def _one_eager(engine: GpuCore):
    chunks = engine.scheduler.schedule()
    return chunks, engine._eagerly(LocalExchange(), chunks).tolist()
