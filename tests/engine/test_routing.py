"""The routing table: every choice goes to exactly one slot that holds the expert, the same on all ranks."""

from __future__ import annotations

import pytest
import torch

from elasticfsm.errors import PlacementError
from elasticfsm.runtime.engine import ExpertRouting
from elasticfsm.runtime.engine.moe import pack, run_local_experts, unpack

TABLE = [[0, 1, 2, -1, 3, 0, 1, 0], [3, 2, 1, 0, 0, 1, 2, 3]]


def test_each_choice_is_computed_by_one_slot_that_holds_the_expert() -> None:
    experts = torch.tensor([[number % 4, (number + 1) % 4] for number in range(40)] + [[-1, -1]] * 3)
    for layer in range(2):
        owners = torch.zeros(experts.shape, dtype=torch.int64)
        for rank in range(4):
            slots = ExpertRouting(4, 2, TABLE).local_slots(layer, experts, rank)
            here = (slots >= 0) & (slots < 2)
            owners += here
            held = torch.tensor(TABLE[layer])[rank * 2 + slots[here]]
            assert held.tolist() == experts[here].tolist()
        assert owners.tolist() == [[1, 1]] * 40 + [[0, 0]] * 3


def test_replicas_take_turns() -> None:
    slots = ExpertRouting(4, 8, TABLE).local_slots(0, torch.zeros(9, 1, dtype=torch.int64), 0)
    assert slots.flatten().tolist() == [0, 5, 7] * 3


def test_a_layer_can_be_replaced_alone() -> None:
    routing = ExpertRouting(4, 8, TABLE)
    routing.set_layer(0, [-1, -1, 3, 2, 1, 0, -1, 0])
    assert routing.local_slots(0, torch.tensor([[0], [0], [0], [3]]), 0).flatten().tolist() == [5, 7, 5, 2]
    assert routing.local_slots(1, torch.tensor([[3], [3]]), 0).flatten().tolist() == [0, 7]


def test_a_layer_can_change_to_another_world_size() -> None:
    routing = ExpertRouting(4, 2, TABLE)
    assert [routing.world_size(layer) for layer in range(3)] == [4, 4, 0]
    routing.set_layer(1, [0, 1, 2, 3])
    assert routing.world_size(1) == 2
    assert routing.local_slots(1, torch.tensor([[2], [3]]), 1).flatten().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ([0, 1, 2, -1, 0, 0, 1, 0], r"experts \[3\] have no slot"),
        ([0, 1, 2, 4, 3, 0, 1, 0], "slot 3 holds expert 4, expected -1 to 3"),
        ([0, 1, 2, 3, 0], r"shape \[5\], expected \[world size \* 2\]"),
        ([0, 1], r"experts \[2, 3\] have no slot"),
    ],
)
def test_a_wrong_layer_is_refused_and_nothing_changes(row: list[int], text: str) -> None:
    routing = ExpertRouting(4, 2, TABLE)
    with pytest.raises(PlacementError, match=text):
        routing.set_layer(0, row)
    assert routing.world_size(0) == 4
    assert routing.local_slots(0, torch.tensor([[0], [3]]), 0).flatten().tolist() == [0, 4]


def test_packing_keeps_everything_and_marks_padding() -> None:
    hidden, weights, experts = torch.randn(3, 8), torch.rand(3, 2), torch.tensor([[0, 5], [70_000, 1], [2, 3]])
    rows = unpack(pack(hidden, weights, experts, max_tokens=5), hidden_size=8)
    for got, sent in zip(rows, (hidden, weights, experts), strict=True):
        assert torch.equal(got[:3], sent)
    assert rows[2].dtype == torch.int64
    assert rows[2][3:].tolist() == [[-1, -1]] * 2


def test_a_rank_that_holds_none_of_the_experts_contributes_zero() -> None:
    hidden, slots = torch.randn(4, 8), torch.tensor([[-1, -3], [2, 9], [-1, -1], [5, 2]])
    share = run_local_experts(hidden, torch.rand(4, 2), slots, torch.randn(2, 12, 8), torch.randn(2, 8, 6))
    assert share.shape == (4, 8)
    assert not share.any()
