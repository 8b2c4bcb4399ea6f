"""Policies against their bounds, and the bounds against brute force."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elasticfsm.errors import PlacementError, RequestRefused
from elasticfsm.runtime.bench.eplb_cases import DRIFTS, RESCALES, SIZES
from elasticfsm.runtime.experts.placement import EMPTY, Placement, minimum_ranks
from elasticfsm.runtime.experts.plan import moves, plan, rank_loads
from elasticfsm.runtime.experts.policy import level, removal
from elasticfsm.runtime.experts.policy.balanced import balanced
from elasticfsm.runtime.experts.policy.bounded import bounded
from elasticfsm.runtime.experts.policy.bounds import (
    assignment,
    busiest,
    busiest_bound,
    full_rank_bound,
    judge,
    moved,
    moved_bound,
    relabelled,
    seconds_bound,
)
from elasticfsm.runtime.experts.policy.removal import choose_leaving, orphans
from elasticfsm.runtime.experts.policy.settings import Policy
from elasticfsm.runtime.experts.policy.stages import ordered, parts, stages, units, within
from elasticfsm.runtime.experts.policy.tally import WHOLE, weights

settings.register_profile("policies", deadline=None, max_examples=60)
settings.load_profile("policies")


def by_rank(placement):
    return placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)


@st.composite
def placements(draw, most_ranks=5):
    """A placement with loads that it was not made for: experts lie anywhere, some slots are empty."""
    layers, experts, slots = draw(st.integers(1, 3)), draw(st.integers(1, 10)), draw(st.integers(1, 6))
    size = draw(st.integers(1, most_ranks))
    assume(size >= minimum_ranks(experts, slots))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    made_for = (rng.lognormal(0, 1, (layers, experts)) * 1000).astype(np.int64)
    rows = balanced(made_for, size, slots)
    spare = Placement(rows.reshape(layers, -1), experts, slots)
    for layer, rank, slot in np.argwhere(rng.random(rows.shape) < 0.2):
        if (rows[layer] == rows[layer, rank, slot]).sum() > 1:
            rows[layer, rank, slot] = EMPTY
    scale = draw(st.sampled_from([0, 3, 1000, 10**15]))
    return Placement(rows.reshape(layers, -1), experts, slots).check() if draw(st.booleans()) else spare, (
        rng.lognormal(0, 1.5, (layers, experts)) * scale
    ).astype(np.int64)


@st.composite
def changes(draw):
    """(placement in force, target, loads, usable ranks): growing, shrinking, both, or neither."""
    placement, loads = draw(placements())
    grown = placement.grow(placement.world_size + draw(st.integers(0, 2)))
    least = minimum_ranks(placement.experts, placement.slots_per_rank)
    allowed = draw(st.sets(st.sampled_from(range(grown.world_size)), min_size=least))
    return grown, plan(grown, loads, allowed), loads, np.isin(np.arange(grown.world_size), sorted(allowed))


# -- bounds ----------------------------------------------------------------------------------------------------


@given(changes())
def test_no_plan_beats_the_bounds(change):
    current, target, loads, usable = change
    verdict = judge(by_rank(current), by_rank(target), loads + 1, usable)
    assert verdict.moved_bound <= verdict.relabelled <= verdict.moved
    assert verdict.balance <= verdict.balance_bound * (1 + 1e-9)
    least = busiest_bound(loads, int(usable.sum()), current.slots_per_rank)
    assert (busiest(by_rank(target), loads) >= least * (1 - 1e-9) - 1e-9).all()


@given(changes())
def test_rows_moved_are_those_that_the_moves_carry_between_ranks(change):
    current, target, _, _ = change
    received = np.zeros((current.layers, current.world_size), dtype=np.int64)
    for layer in range(current.layers):
        for move in moves(layer, current, target):
            if current.rank_of(move.source) != current.rank_of(move.destination):
                received[layer, current.rank_of(move.destination)] += 1
    assert (received == moved(by_rank(current), by_rank(target), current.experts)).all()


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 20), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_the_assignment_is_the_cheapest_of_all_permutations(cost):
    table, size = np.array(cost), len(cost)
    found = assignment(table)
    assert sorted(found) == list(range(size))
    best = min(sum(table[row, column] for row, column in enumerate(each)) for each in permutations(range(size)))
    assert table[np.arange(size), found].sum() == best


@given(changes())
def test_relabelling_keeps_the_partition_and_moves_no_more(change):
    current, target, loads, usable = change
    other = relabelled(by_rank(current), by_rank(target), usable, current.experts)
    for layer in range(current.layers):
        assert sorted(map(tuple, other[layer])) == sorted(map(tuple, by_rank(target)[layer]))
    before, after = (moved(by_rank(current), rows, current.experts).sum() for rows in (by_rank(target), other))
    assert after <= before
    assert loads.shape == (current.layers, current.experts)


def test_the_bound_on_the_busiest_rank_is_met_where_it_can_be():
    loads = np.array([[900, 100, 100, 100], [100, 100, 100, 100]])
    assert busiest_bound(loads, 2, 2).tolist() == [900, 200]  # four slots: nothing can be replicated
    assert busiest_bound(loads, 2, 3).tolist() == [600, 200]
    assert busiest_bound(loads, 4, 2).tolist() == [300, 100]
    assert busiest_bound(np.array([[1, 1]]), 6, 1).tolist() == [1 / 3]  # shares below one token, too
    assert full_rank_bound([5, 4, 1, 2], 3) == 5 + 1 + 2
    assert seconds_bound([10, 30], [5, 40], 10.0) == 4.0


def test_weights_are_whole_and_never_zero():
    scaled = weights(np.array([[0, 1, 2**62], [0, 0, 0], [5, 5, 6]], dtype=np.int64))
    assert scaled.min() >= 1 and (scaled.sum(axis=1) <= WHOLE + 3).all()
    assert len(set(scaled[1].tolist())) == 1


# -- bounded ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", RESCALES, ids=lambda case: case.name)
def test_a_rescale_moves_little_more_than_it_must_and_balances(case, seed):
    rows, loads, usable = case.setting(seed)
    verdict = judge(rows, bounded(rows, loads, usable, Policy()), loads, usable, relabel=False)
    assert verdict.of_moved <= {"grow": 1.15, "shrink": 1.3, "loss": 4.0}[case.kind]
    assert verdict.of_balance >= 0.95


@pytest.mark.parametrize("case", [c for c in (*DRIFTS, *SIZES) if c.drift == 0.3], ids=lambda case: case.name)
def test_a_drift_is_balanced_by_few_moves(case):
    rows, loads, usable = case.setting(0)
    verdict = judge(rows, bounded(rows, loads, usable, Policy()), loads, usable, relabel=False)
    assert verdict.of_balance >= 0.96
    assert verdict.moved <= 0.16 * rows.size


@given(placements())
def test_a_second_plan_for_the_same_loads_moves_nothing_from_anywhere(drawn):
    placement, loads = drawn
    target = plan(placement, loads)
    assert plan(target, loads) is target


@given(changes())
def test_whoever_stays_keeps_its_slot(change):
    current, target, _, usable = change
    was, will = by_rank(current), by_rank(target)
    for layer, rank in np.ndindex(was.shape[:2]):
        if usable[rank]:
            for slot, expert in enumerate(was[layer, rank]):
                assert expert == EMPTY or expert not in will[layer, rank] or will[layer, rank, slot] == expert


# -- balanced --------------------------------------------------------------------------------------------------


@given(placements(), st.integers(0, 2))
def test_balanced_covers_every_expert_and_fills_every_useful_slot(drawn, more):
    placement, loads = drawn
    size, slots = placement.world_size + more, placement.slots_per_rank
    rows = balanced(loads, size, slots)
    made = Placement(rows.reshape(len(rows), -1), placement.experts, slots).check()
    assert (made.replicas.sum(axis=1) == size * min(slots, placement.experts)).all()
    assert (plan(placement.grow(size), loads, policy=Policy(kind="balanced")).replicas == made.replicas).all()


def test_balanced_reaches_the_loads_of_the_published_example():
    # The example in the README of DeepSeek's EPLB: two layers, 12 experts in 4 groups, 16 replicas, 2 nodes, 8 GPUs.
    loads = np.array(
        [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
    )
    published = np.array(
        [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1], [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]
    )
    theirs = Placement(published, 12, 2)
    mine = Placement(balanced(loads, 8, 2, nodes=2, groups=4).reshape(2, -1), 12, 2)
    assert (mine.replicas == theirs.replicas).all()
    assert np.allclose(np.sort(rank_loads(mine, loads)), np.sort(rank_loads(theirs, loads)))


def test_hierarchical_keeps_a_group_on_one_node():
    loads = (np.random.default_rng(3).lognormal(0, 1, (3, 16)) * 100).astype(np.int64)
    rows = balanced(loads, 4, 5, nodes=2, groups=4)
    for layer in rows:
        left, right = (set((layer[ranks] // 4).ravel().tolist()) - {-1} for ranks in (slice(2), slice(2, 4)))
        assert not left & right and left | right == {0, 1, 2, 3}


def test_sizes_that_do_not_divide_are_refused():
    loads = np.ones((1, 12), dtype=np.int64)
    with pytest.raises(PlacementError, match="do not divide"):
        balanced(loads, 3, 8, nodes=2, groups=4)
    with pytest.raises(PlacementError, match="cannot hold 12 experts"):
        balanced(loads, 2, 5)


# -- who leaves ------------------------------------------------------------------------------------------------


@given(placements(), st.integers(0, 3))
def test_the_choice_of_leaving_ranks_is_the_best_of_all(drawn, count):
    placement, _ = drawn
    assume(count <= placement.world_size - minimum_ranks(placement.experts, placement.slots_per_rank))
    chosen = choose_leaving(placement, count)
    assert len(chosen) == count
    assert orphans(placement, chosen) == min(
        orphans(placement, each) for each in combinations(range(placement.world_size), count)
    )


def test_among_equals_the_highest_ranks_leave_and_kept_ones_never():
    placement = Placement.initial(2, 8, 4, 8)
    assert choose_leaving(placement, 2) == (2, 3)
    assert choose_leaving(placement, 2, keep=[3]) == (1, 2)
    with pytest.raises(PlacementError, match="3 ranks are to leave but only 2 of 4 may"):
        choose_leaving(placement, 3, keep=[0, 3])
    with pytest.raises(RequestRefused, match="smallest valid size is 1"):
        choose_leaving(placement, 4)


def test_with_many_subsets_a_rank_without_orphans_is_still_found(monkeypatch):
    monkeypatch.setattr(removal, "EXACT", 0)
    rows = np.array([[0, 1, 2, 3, 4, 5, 0, 2, 1, 3, 6, 7]])
    placement = Placement(rows, 8, 2)  # ranks 0 to 5; 3 and 4 hold only what others hold, too
    assert orphans(placement, [3, 4]) == 0
    assert choose_leaving(placement, 2) == (3, 4)


# -- parts -----------------------------------------------------------------------------------------------------


@given(changes(), st.integers(1, 6))
def test_every_stage_is_covered_and_within_the_budget_unless_experts_must_change_together(change, budget):
    current, target, loads, _ = change
    at = current
    for stage in stages(current, target, loads, budget):
        stage.check()
        was, will = by_rank(at), by_rank(stage)
        rows = int(moved(was, will, current.experts).sum())
        assert rows <= budget or (was != will).any(axis=(1, 2)).sum() == 1
        at = stage
    assert (at.physical_to_logical == target.physical_to_logical).all()


@given(changes(), st.integers(1, 6))
def test_every_part_of_a_layer_is_covered_and_within_the_budget_unless_experts_must_change_together(change, budget):
    current, target, _, _ = change
    for layer in range(current.layers):
        was, goal = by_rank(current)[layer], by_rank(target)[layer]
        whole = Placement(current.row(layer)[None], current.experts, current.slots_per_rank)
        at, found = was, parts(was, goal, current.experts, budget)
        for part in found:
            whole.with_rows(part.reshape(1, -1)).check()
            rows = int(moved(at[None], part[None], current.experts).sum())
            assert rows <= budget or sum(1 for _ in units(at, part, np.ones(len(was), dtype=bool))) == 1
            at = part
        assert (found[-1] == goal).all()


@given(changes(), st.integers(1, 6))
def test_a_budget_still_repairs_and_evacuates(change, budget):
    current, target, loads, usable = change
    rows = within(current, target, loads, usable, budget)
    made = Placement(rows.reshape(current.layers, -1), current.experts, current.slots_per_rank).check()
    assert (by_rank(made)[:, ~usable] == EMPTY).all()
    needed = moved_bound(by_rank(current), usable, current.experts).sum()
    assert moved(by_rank(current), rows, current.experts).sum() <= max(
        needed, moved(by_rank(current), by_rank(target), current.experts).sum()
    )


def test_a_budget_is_spent_where_a_row_gains_most():
    loads = np.array([[10, 10, 10, 10], [70, 10, 10, 10]])
    current = Placement(np.array([[0, 1, 2, 3, -1, -1], [0, 1, 2, 3, -1, -1]]), 4, 2)
    target = plan(current, loads)
    assert ordered(current, target, loads)[0] == 1
    some = plan(current, loads, policy=Policy(budget_rows=2))
    assert (some.row(0) == current.row(0)).all() and (some.row(1) == target.row(1)).all()


# -- levelling -------------------------------------------------------------------------------------------------


def objective(tally, sizes):
    excess = np.maximum(tally.by_rank.astype(np.int64) - sizes.limit[:, None], 0).sum(axis=1)
    return excess + sizes.price * (tally.holds & ~tally.held_before).sum(axis=(1, 2))


@pytest.mark.parametrize("case", [*RESCALES[2:4], RESCALES[6], DRIFTS[2], SIZES[2]], ids=lambda case: case.name)
def test_every_step_lowers_excess_plus_price_of_rows_in_each_layer_that_it_changes(case, monkeypatch):
    step = level._step
    taken = []

    def watched(tally, layers, sizes, *rest):
        before = objective(tally, sizes)
        paid = step(tally, layers, sizes, *rest)
        changed = np.isin(np.arange(tally.layers), layers[paid])
        after = objective(tally, sizes)
        assert (after[changed] < before[changed]).all() and (after[~changed] == before[~changed]).all()
        again = tally.by_rank.copy(), tally.share.copy()
        tally.refresh()
        assert (again[0] == tally.by_rank).all() and (again[1] == tally.share).all()
        taken.append(int(paid.sum()))
        return paid

    monkeypatch.setattr(level, "_step", watched)
    bounded(*case.setting(3), Policy(tolerance=0.02, min_gain=0.001))
    assert sum(taken) > 0


def test_a_very_hot_expert_gets_a_replica_on_every_rank():
    loads = np.ones((1, 16), dtype=np.int64)
    loads[:, 7] = 1000
    target = plan(Placement.initial(1, 16, 2, 10).grow(4), loads)
    assert target.replicas[0, 7] == 4
