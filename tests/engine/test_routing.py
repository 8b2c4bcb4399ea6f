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
            slots = ExpertRouting(TABLE, 4, rank, 4).local_slots(layer, experts)
            here = (slots >= 0) & (slots < 2)
            owners += here
            held = torch.tensor(TABLE[layer])[rank * 2 + slots[here]]
            assert held.tolist() == experts[here].tolist()
        assert owners.tolist() == [[1, 1]] * 40 + [[0, 0]] * 3


def test_replicas_take_turns() -> None:
    slots = ExpertRouting(TABLE, 4, 0, 1).local_slots(0, torch.zeros(9, 1, dtype=torch.int64))
    assert slots.flatten().tolist() == [0, 5, 7] * 3


def test_a_layer_can_be_replaced_alone() -> None:
    routing = ExpertRouting(TABLE, 4, 0, 1)
    routing.set_layer(0, [-1, -1, 3, 2, 1, 0, -1, 0])
    assert routing.local_slots(0, torch.tensor([[0], [0], [0], [3]])).flatten().tolist() == [5, 7, 5, 2]
    assert routing.local_slots(1, torch.tensor([[3], [3]])).flatten().tolist() == [0, 7]
    assert routing.physical_to_logical.tolist() == [[-1, -1, 3, 2, 1, 0, -1, 0], TABLE[1]]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ([0, 1, 2, -1, 0, 0, 1, 0], r"experts \[3\] have no slot"),
        ([0, 1, 2, 4, 3, 0, 1, 0], "slot 3 holds expert 4, expected -1..3"),
        ([0, 1, 2, 3], r"shape \[4\], expected \[8\]"),
    ],
)
def test_a_wrong_layer_is_refused_and_nothing_changes(row: list[int], text: str) -> None:
    routing = ExpertRouting(TABLE, 4, 0, 4)
    with pytest.raises(PlacementError, match=text):
        routing.set_layer(0, row)
    assert routing.physical_to_logical.tolist() == TABLE
    assert routing.local_slots(0, torch.tensor([[0]])).tolist() == [[0]]


def test_a_placement_that_does_not_divide_among_the_ranks_is_refused() -> None:
    with pytest.raises(PlacementError, match="rank 0 of 3"):
        ExpertRouting(TABLE, 4, 0, 3)


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
