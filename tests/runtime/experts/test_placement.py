import msgspec
import numpy as np
import pytest

from elasticfsm.errors import PlacementError, RequestRefused
from elasticfsm.runtime.experts.placement import (
    EMPTY,
    Placement,
    PlacementWire,
    minimum_ranks,
    refuse_size,
)


def test_initial_placement_covers_every_expert_and_spends_redundant_slots_on_replicas():
    placement = Placement.initial(layers=3, experts=16, world_size=2, slots_per_rank=10).check()
    assert placement.replicas.sum() == 3 * 20
    assert placement.replicas.max() == 2
    assert placement.slots(0, 8) == [8, 10]


def test_more_slots_than_experts_stay_empty_instead_of_holding_duplicates():
    placement = Placement.initial(layers=1, experts=4, world_size=2, slots_per_rank=6).check()
    assert (placement.physical_to_logical == EMPTY).sum() == 4


def test_growing_moves_nobody_and_restricting_back_is_the_same_map():
    small = Placement.initial(2, 16, 2, 10)
    grown = small.grow(4)
    assert (grown.physical_to_logical[:, :20] == small.physical_to_logical).all()
    assert (grown.physical_to_logical[:, 20:] == EMPTY).all()
    assert grown.ranks_used() == {0, 1}
    assert (grown.restrict([0, 1]).physical_to_logical == small.physical_to_logical).all()


def test_restrict_renumbers_in_the_order_given_and_refuses_to_lose_an_expert():
    placement = Placement.initial(1, 4, 3, 4)
    assert placement.restrict([2, 0]).world_size == 2
    assert (placement.restrict([2, 0]).row(0)[:4] == placement.row(0)[8:]).all()
    with pytest.raises(PlacementError, match=r"without a replica: 0/8.*every expert needs a slot"):
        Placement.initial(1, 16, 2, 8).restrict([0])


def test_check_names_layer_slot_and_expert():
    rows = np.array([[0, 1, 2, 0]])
    Placement(rows, 3, 2).check()
    with pytest.raises(PlacementError, match="layer 0: rank 0 holds expert 1 twice"):
        Placement(np.array([[1, 1, 2, 0]]), 3, 2).check()
    Placement(np.array([[1, 1, 2, 0]]), 3, 2).check(duplicates=True)
    with pytest.raises(PlacementError, match="slot 3 holds expert 7; expected -1 to 2"):
        Placement(np.array([[0, 1, 2, 7]]), 3, 2).check()
    with pytest.raises(PlacementError, match=r"expected .layers, world size"):
        Placement(np.array([[0, 1, 2]]), 3, 2)


def test_contents_cannot_be_changed():
    placement = Placement.initial(1, 4, 2, 2)
    with pytest.raises(ValueError, match="read-only"):
        placement.physical_to_logical[0, 0] = 3


def test_hash_is_stable_fits_an_int64_and_sees_contents_and_version():
    placement = Placement.initial(2, 8, 2, 5, "grow-1")
    assert placement.hash() == Placement.initial(2, 8, 2, 5, "grow-1").hash() == 4006298491262441400
    assert 0 <= placement.hash() < 1 << 63
    row = placement.row(0).copy()
    row[0], row[1] = row[1], row[0]
    changed = placement.with_row(0, row)
    assert changed.hash() != placement.hash()
    assert changed.version == "grow-1.1"
    assert Placement.initial(2, 8, 2, 5, "grow-2").hash() != placement.hash()


def test_a_placement_travels_as_message_pack_and_a_truncated_one_is_refused():
    placement = Placement.initial(3, 8, 2, 5, "grow-1").grow(3)
    encoded = msgspec.msgpack.encode(placement.to_wire())
    wire = msgspec.msgpack.decode(encoded, type=PlacementWire)
    assert Placement.from_wire(wire) == placement
    with pytest.raises(PlacementError, match="came with 176 bytes; expected 180"):
        Placement.from_wire(msgspec.structs.replace(wire, rows=wire.rows[:-4]))


def test_sizes_that_cannot_hold_the_experts_are_refused_with_the_sizes_that_can():
    assert minimum_ranks(16, 10) == 2
    refuse_size(2, 16, 10, 4)
    with pytest.raises(
        RequestRefused, match=r"size 1 is too small: 1 x 10 slots = 10 for 16 experts; .*valid .*2 to 4"
    ):
        refuse_size(1, 16, 10, 4)
    with pytest.raises(RequestRefused, match="size 5 is larger than allowed"):
        refuse_size(5, 16, 10, 4)
    with pytest.raises(RequestRefused, match="size 0 is not a number of engines"):
        refuse_size(0, 16, 10)
    with pytest.raises(RequestRefused, match="the smallest valid size is 4, valid sizes: none"):
        refuse_size(2, 16, 4, 3)
