"""Properties of the policy, for shapes and loads that Hypothesis invents."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elasticfsm.errors import PlacementError
from elasticfsm.runtime.experts.placement import EMPTY, Placement, minimum_ranks
from elasticfsm.runtime.experts.plan import moves, plan, rank_loads
from elasticfsm.runtime.experts.policy.bounds import moved_bound
from elasticfsm.runtime.experts.policy.settings import Policy

settings.register_profile("plan", deadline=None, max_examples=60)
settings.load_profile("plan")


@dataclass
class Case:
    placement: Placement
    loads: np.ndarray


@st.composite
def cases(draw):
    layers, experts, slots = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 8))
    size = draw(st.integers(1, 5))
    assume(size >= minimum_ranks(experts, slots))
    counts = st.lists(st.integers(0, 10_000), min_size=experts, max_size=experts)
    loads = np.array([draw(counts) for _ in range(layers)], dtype=np.int64)
    return Case(Placement.initial(layers, experts, size, slots), loads)


def change_layer_by_layer(old, new):
    """Every placement on the way, as the rebalance goes through it."""
    at, passed = old, [old]
    for layer in range(old.layers):
        at = at.with_row(layer, new.row(layer))
        passed.append(at)
    return passed


def copies(old, new):
    return [move for layer in range(old.layers) for move in moves(layer, old, new)]


def least_moved(placement, stay):
    usable = np.isin(np.arange(placement.world_size), list(stay))
    rows = placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)
    return int(moved_bound(rows, usable, placement.experts).sum())


@given(cases(), st.integers(0, 3))
def test_growing_keeps_survivors_in_place_and_copies_what_the_new_ranks_hold(case, added):
    grown = case.placement.grow(case.placement.world_size + added)
    target = plan(grown, case.loads, policy=Policy(tolerance=1e9))  # no levelling: that may move survivors
    old_slots = case.placement.physical_to_logical.shape[1]
    assert (target.physical_to_logical[:, :old_slots] == case.placement.physical_to_logical).all()
    assert len(copies(grown, target)) >= least_moved(grown, range(grown.world_size))


@given(cases(), st.integers(0, 3))
def test_every_expert_is_covered_at_every_intermediate_layer(case, added):
    grown = case.placement.grow(case.placement.world_size + added)
    for passed in change_layer_by_layer(grown, plan(grown, case.loads)):
        passed.check()


@given(cases(), st.data())
def test_evacuating_leaves_no_slot_on_removed_ranks_and_loses_no_expert(case, data):
    placement = case.placement
    least = minimum_ranks(placement.experts, placement.slots_per_rank)
    stay = data.draw(st.sets(st.sampled_from(range(placement.world_size)), min_size=least))
    target = plan(placement, case.loads, stay)
    assert target.ranks_used() <= stay
    for passed in change_layer_by_layer(placement, target):
        passed.check()
    assert len(copies(placement, target)) >= least_moved(placement, stay)
    target.restrict(sorted(stay)).check()


@given(cases())
def test_the_plan_is_a_function_of_its_arguments(case):
    first, second = (plan(case.placement.grow(case.placement.world_size + 1), case.loads.copy()) for _ in range(2))
    assert first.hash() == second.hash()


@given(cases())
def test_a_second_plan_for_the_same_loads_moves_nothing(case):
    target = plan(case.placement, case.loads)
    assert plan(target, case.loads) is target


@given(cases())
def test_levelling_never_makes_the_busiest_rank_busier(case):
    before = rank_loads(case.placement, case.loads + 1).max(axis=1)
    after = rank_loads(plan(case.placement, case.loads), case.loads + 1).max(axis=1)
    assert (after <= before * (1 + 1e-9)).all()


@given(cases(), st.integers(0, 3))
def test_moves_turn_the_old_row_into_the_new_one_reading_old_rows_only(case, added):
    grown = case.placement.grow(case.placement.world_size + added)
    target = plan(grown, case.loads)
    for layer in range(grown.layers):
        held = {slot: int(expert) for slot, expert in enumerate(grown.row(layer))}
        staged = {move.destination: held[move.source] for move in moves(layer, grown, target)}
        after = {slot: EMPTY if target.row(layer)[slot] == EMPTY else staged.get(slot, held[slot]) for slot in held}
        assert list(after.values()) == target.row(layer).tolist()


def test_sources_are_levelled_and_a_copy_on_the_own_rank_comes_first():
    old = Placement(np.array([[0, 1, 0, 1, -1, -1, -1, -1]]), 2, 2)
    new = Placement(np.array([[0, 1, 0, 1, 0, 1, 1, 0]]), 2, 2)
    senders = [move.source // 2 for move in moves(0, old, new)]
    assert sorted(senders) == [0, 0, 1, 1]
    # Expert 1 can only come from rank 0, so expert 0 should not.
    old = Placement(np.array([[0, 1, 0, 2, -1, -1]]), 3, 2)
    new = Placement(np.array([[0, 1, 0, 2, 0, 1]]), 3, 2)
    assert [move.source // 2 for move in moves(0, old, new)] == [1, 0]
    inside = Placement(np.array([[0, -1, 0, 1]]), 2, 2), Placement(np.array([[-1, 0, 0, 1]]), 2, 2)
    assert [move.source for move in moves(0, *inside)] == [0]


@pytest.mark.parametrize("path", [(1, 4), (2, 4), (3, 4)])
def test_new_ranks_are_filled_with_the_experts_of_most_load(path):
    loads = np.array([[1, 1, 1, 1, 1, 1, 1, 500]], dtype=np.int64)
    old = Placement.initial(1, 8, path[0], 8).grow(path[1])
    target = plan(old, loads)
    assert target.replicas[0, 7] == path[1]
    assert (target.physical_to_logical != EMPTY).all()


def test_a_skewed_load_is_levelled_by_few_moves():
    rng = np.random.default_rng(7)
    loads = (rng.lognormal(0, 1, (6, 16)) * 1000).astype(np.int64)
    old = Placement.initial(6, 16, 4, 5)
    target = plan(old, loads)
    before, after = (rank_loads(p, loads).max(axis=1) / rank_loads(p, loads).mean(axis=1) for p in (old, target))
    assert before.max() > 1.5
    assert after.max() < 1.08
    assert len(copies(old, target)) < 0.2 * 6 * 20


def test_a_change_that_gains_too_little_per_row_is_not_made():
    placement = Placement(np.array([[0, 1, 2, 3]]), 4, 2)
    loads = np.array([[60, 50, 45, 45]], dtype=np.int64)
    assert len(copies(placement, plan(placement, loads))) == 2
    assert plan(placement, loads, policy=Policy(min_gain=0.05)) is placement
    assert plan(placement, loads, policy=Policy(tolerance=0.2)) is placement


def test_without_any_load_nothing_moves_for_balance():
    old = Placement.initial(2, 16, 2, 10)
    assert plan(old, np.zeros((2, 16), dtype=np.int64)) is old


def test_impossible_plans_say_why():
    placement = Placement.initial(1, 16, 2, 10)
    with pytest.raises(PlacementError, match="1 ranks x 10 slots cannot hold 16 experts"):
        plan(placement, np.ones((1, 16), dtype=np.int64), [0])
    with pytest.raises(PlacementError, match="expected counts of shape"):
        plan(placement, np.ones((1, 15), dtype=np.int64))
    with pytest.raises(PlacementError, match=r"allowed ranks .* are not among 0 to 1"):
        plan(placement, np.ones((1, 16), dtype=np.int64), [0, 2])
    with pytest.raises(PlacementError, match="no rank holds expert 3"):
        moves(0, Placement(np.array([[0, 1]]), 4, 2), Placement(np.array([[3, 1]]), 4, 2))
