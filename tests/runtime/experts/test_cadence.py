"""When a rebalance is due, what it looks at, and how offers travel."""

import itertools

import numpy as np
import pytest
import torch

from elasticfsm.compile import program
from elasticfsm.runtime.bench.rescales import path
from elasticfsm.runtime.experts import offers
from elasticfsm.runtime.experts.cadence import Cadence, synchronous
from elasticfsm.runtime.experts.window import LoadWindow


def test_a_rebalance_is_due_an_interval_after_the_last_plan_and_anew_after_a_switch():
    step = 0
    cadence = Cadence("async", 10, lambda: step)
    assert not cadence.due()
    step = 10
    assert cadence.due()
    cadence.planned()
    step = 19
    assert not cadence.due()
    step = 20
    assert cadence.due()
    step = 0
    cadence.switched()
    assert not cadence.due()
    assert not Cadence("off", 1, lambda: 100).due()


def test_the_window_forgets_the_oldest_step():
    window = LoadWindow(2, 1, 3)
    for number in (1, 10, 100):
        window.add(torch.full((1, 3), number))
    assert window.total().tolist() == [[110, 110, 110]]


def test_sync_takes_behaviours_away_and_adds_none():
    before, after = program("rebalance"), synchronous(program("rebalance"))
    changed = {
        name
        for name, state in after.machines["rebalance.main"].states.items()
        if state != before.machines["rebalance.main"].states[name]
    }
    assert changed == {"copying", "waiting"}
    assert not after.machines["rebalance.main"].states["copying"].serves
    assert after.machines["rebalance.worker"] == before.machines["rebalance.worker"]


@pytest.mark.parametrize("sizes", [(0, 0, 0), (1, 400, 7), (1000, 999, 3)])
def test_offers_of_all_ranks_come_out_of_one_maximum(sizes):
    given = [bytes(np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)) for size in sizes]
    place = offers.words(max(sizes))
    packed = [offers.packed(offer, rank, len(given), place) for rank, offer in enumerate(given)]
    assert all(0 <= word < 1 << 56 for words in packed for word in words)
    assert offers.unpacked([max(words) for words in zip(*packed, strict=True)], place) == given


def test_a_path_is_known_by_its_seed_and_changes_at_every_step():
    sizes = path(20, 7)
    assert sizes == path(20, 7)
    assert len(sizes) == 21
    assert set(sizes) <= {1, 2, 3, 4}
    assert all(a != b for a, b in itertools.pairwise(sizes))
