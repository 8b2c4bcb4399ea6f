"""Tokens of the engine equal those of transformers, however requests are batched, chunked, spread or interrupted."""

from __future__ import annotations

import pytest
import torch

from elasticfsm.errors import GroupError, PlacementError
from elasticfsm.runtime.engine import (
    Checkpoint,
    LocalExchange,
    Mismatch,
    Model,
    ModelConfig,
    Request,
    check_tokens,
)
from elasticfsm.runtime.models import PSALTER

from .simulation import Engine, ThreadExchange, group_of_engines, request, run_together, streams

EXPERTS, LAYERS = 16, 4
# Ten slots on each of two ranks, seven on each of four: experts 0 to 3 (0 to 11) have a replica on another rank.
TWO_RANKS = [[*range(10), *range(10, 16), 0, 1, 2, 3]] * LAYERS
FOUR_RANKS = [[(rank * 7 + slot) % EXPERTS for rank in range(4) for slot in range(7)]] * LAYERS
# Ranks 2 and 3 hold nothing, as engines do that have just joined.
WITH_EMPTY_RANK = [[*range(16), *[-1] * 16]] * LAYERS


def check(requests: list[Request]) -> list[Mismatch]:
    return check_tokens(PSALTER, streams(requests))


def test_tokens_of_mixed_requests_equal_the_reference() -> None:
    engine = Engine()
    requests = [request(number, 60) for number in range(6)]
    for one in requests[:3]:
        engine.scheduler.add(one)
    for late in requests[3:]:
        engine.step()
        engine.scheduler.add(late)
    engine.drain()
    assert check(requests) == []
    assert all(one.finished for one in requests)
    assert len({tuple(one.generated) for one in requests}) == 6


def test_chunked_prefill_gives_the_same_tokens() -> None:
    whole, chunked = Engine(max_tokens=128), Engine(max_tokens=8)
    runs = []
    for engine in (whole, chunked):
        requests = [request(number) for number in range(6)]
        for one in requests:
            engine.scheduler.add(one)
        engine.drain()
        runs.append(requests)
    assert check([one for run in runs for one in run]) == []


def test_a_step_never_takes_more_tokens_than_its_limit() -> None:
    engine = Engine(max_tokens=8)
    for number in range(12):
        engine.scheduler.add(request(number, 5))
    sizes = []
    while engine.scheduler.has_work:
        sizes.append(engine.step().tokens)
    assert max(sizes) == 8


def test_decoding_requests_advance_in_every_step_beside_a_long_prompt() -> None:
    engine = Engine(max_tokens=8)
    engine.scheduler.add(request(1, 30))
    while not any(engine.step().events):
        pass
    engine.scheduler.add(Request("long", [32] * 100, 5, (0,)))
    for _ in range(10):
        assert [event.request_id for event in engine.step().events][:1] == ["r1"]


@pytest.mark.parametrize(
    ("placement", "world_size"), [(TWO_RANKS, 2), (FOUR_RANKS, 4), (WITH_EMPTY_RANK, 4)], ids=["two", "four", "empty"]
)
def test_tokens_do_not_depend_on_ranks_and_replicas(placement: list[list[int]], world_size: int) -> None:
    engines = group_of_engines(placement, world_size)
    requests = [request(number, 24) for number in range(6)]
    # Rank 0 has most requests and the last rank none: it takes dummy steps.
    for number, one in enumerate(requests):
        engines[number % (world_size - 1)].scheduler.add(one)
    results = run_together(engines, 40)
    assert all(one.finished for one in requests)
    assert check(requests) == []
    assert all(step.tokens == 0 for step in results[-1])


def test_every_step_of_every_rank_has_the_same_shapes() -> None:
    engines = group_of_engines(TWO_RANKS, 2)
    engines[0].scheduler.add(request(0, 6))
    run_together(engines, 5)
    columns = engines[0].model.config.hidden_size + 2 * engines[0].model.config.num_experts_per_tok
    for engine in engines:
        exchange = engine.exchange
        assert isinstance(exchange, ThreadExchange)
        assert exchange.shapes == [(16, columns), (32, 128)] * LAYERS * 5


def test_expert_load_counts_each_token_once_per_choice() -> None:
    engines = group_of_engines(TWO_RANKS, 2)
    engines[0].scheduler.add(request(0, 6))
    results = run_together(engines, 6)
    for step in (*results[0], *results[1]):
        assert step.expert_load.shape == (LAYERS, EXPERTS)
        assert step.expert_load.dtype == torch.int64
        assert step.expert_load.sum(dim=1).tolist() == [2 * step.tokens] * LAYERS
    assert results[0][0].tokens > 0


def test_swapping_two_experts_of_one_layer_is_reported() -> None:
    engine = Engine()
    checkpoint = Checkpoint(PSALTER)
    requests = [request(number, 60) for number in range(4)]
    busiest = _busiest_expert(layer=1)
    engine.model.load_expert(1, busiest, (busiest + 1) % EXPERTS, checkpoint)
    engine.model.load_expert(1, (busiest + 1) % EXPERTS, busiest, checkpoint)
    for one in requests:
        engine.scheduler.add(one)
    engine.drain()
    wrong = check(requests)
    assert {mismatch.request for mismatch in wrong} == {0, 1, 2, 3}
    assert all(mismatch.got != mismatch.expected and mismatch.gap >= 1e-4 for mismatch in wrong)


def _busiest_expert(layer: int) -> int:
    engine = Engine()
    for number in range(4):
        engine.scheduler.add(request(number, 10))
    total = torch.zeros(LAYERS, EXPERTS, dtype=torch.int64)
    while engine.scheduler.has_work:
        total += engine.step().expert_load
    return int(total[layer].argmax())


def test_one_changed_token_is_reported_at_its_place() -> None:
    engine, one = Engine(), request(0, 20)
    engine.scheduler.add(one)
    engine.drain()
    right = one.generated[7]
    one.generated[7] = ord("~")
    first = check([one])[0]
    assert (first.request, first.position, first.got, first.expected) == (0, 7, ord("~"), right)


def test_preemption_under_a_tiny_cache_keeps_tokens_right() -> None:
    engine = Engine(max_tokens=16, blocks=10)
    requests = [request(number, 60) for number in range(5)]
    for one in requests:
        engine.scheduler.add(one)
    engine.drain()
    assert engine.scheduler.counters.preempted > 0
    assert engine.scheduler.pool.free == 10
    assert check(requests) == []


def test_handed_over_requests_continue_with_the_next_index() -> None:
    first, second = Engine(), Engine(max_tokens=16)
    requests = [request(number, 40) for number in range(4)]
    for one in requests:
        first.scheduler.add(one)
    events = [event for _ in range(15) for event in first.step().events]
    moved = first.scheduler.evict_all()
    assert first.scheduler.pool.free == first.scheduler.pool.total and not first.scheduler.has_work
    for one in moved:
        one.epoch += 1
        second.scheduler.add(one)
    events += second.drain()
    assert check(requests) == []
    for one in requests:
        own = [event for event in events if event.request_id == one.id]
        assert [event.index for event in own] == list(range(len(one.generated)))
        assert [event.token for event in own] == one.generated
        assert [event.epoch for event in own] == sorted(event.epoch for event in own)
        assert [event.finished is not None for event in own] == [False] * (len(own) - 1) + [True]


class BrokenExchange(LocalExchange):
    """Fails in the middle of a step, as a group does whose peer has died."""

    def __init__(self) -> None:
        self.left = 2

    def dispatch(self, packed: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if not self.left:
            raise GroupError("peer died")
        return packed


def test_a_step_that_failed_can_be_run_again_on_another_group() -> None:
    engine = Engine()
    requests = [request(number, 20) for number in range(3)]
    for one in requests:
        engine.scheduler.add(one)
    for _ in range(5):
        engine.step()
        engine.exchange = BrokenExchange()
        with pytest.raises(GroupError):
            engine.step()
        engine.exchange = LocalExchange()
    engine.drain()
    assert check(requests) == []


def test_a_model_filled_from_a_peers_memory_gives_the_same_tokens() -> None:
    source, target = Engine(), Engine()
    fresh = Model.allocate(source.model.config, EXPERTS)
    assert list(fresh.non_expert_tensors()) == list(source.model.non_expert_tensors())
    fresh.storage.copy_(source.model.storage)
    for layer in range(LAYERS):
        for slot in range(EXPERTS):
            for mine, theirs in zip(fresh.expert_slot(layer, slot), source.model.expert_slot(layer, slot), strict=True):
                assert mine.is_contiguous()
                mine.copy_(theirs)
    target.model = fresh
    one = request(2, 30)
    target.scheduler.add(one)
    target.drain()
    assert check([one]) == []


def test_weights_keep_their_addresses_over_loading_and_steps() -> None:
    engine = Engine()
    before = _addresses(engine.model)
    engine.model.load_non_experts(Checkpoint(PSALTER))
    engine.model.load_expert(0, 3, 5, Checkpoint(PSALTER))
    engine.scheduler.add(request(0, 3))
    engine.drain()
    assert _addresses(engine.model) == before


def _addresses(model: Model) -> list[int]:
    tensors = list(model.non_expert_tensors().values())
    for layer in range(LAYERS):
        for slot in range(model.slots_per_rank):
            tensors += model.expert_slot(layer, slot)
    return [tensor.data_ptr() for tensor in tensors]


def test_a_model_refuses_routing_for_another_number_of_slots() -> None:
    engine = Engine()
    engine.model = Model.allocate(ModelConfig.read(PSALTER), slots_per_rank=4)
    with pytest.raises(PlacementError, match="16 slots per rank, this model holds 4"):
        engine.step()
