"""Two to three engines move expert rows over real groups: every row ends where the map says, right to the bit."""

import gc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from small_engine import EXPERTS, LAYERS, ROW, SLOTS, Engine, start

from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.experts.placement import EMPTY
from elasticfsm.runtime.experts.policy.bounds import moved
from elasticfsm.runtime.store import StoreServer


def grow_and_shrink(link, store, me, kind):
    """2 -> 3, experts follow; rank 0 is evacuated and leaves."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    reports = []
    layers = engine.rebalance()
    reports.append(engine.report() | {"layers": layers})
    engine.state.aim("evacuate", ["e0"])
    engine.experts.stop()
    engine.experts.start()
    layers = engine.rebalance()
    engine.experts.leave()
    reports.append(engine.report() | {"layers": layers})
    engine.meet(["e1", "e2"])
    if me != "e0":
        engine.state.aim("spread")
        engine.rebalance()
        reports.append(engine.report())
    engine.close()
    return reports


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_rows_follow_the_map_when_growing_and_when_rank_0_leaves(processes, store, kind):
    children = start(processes, store, grow_and_shrink, kind)
    results = [child.result() for child in reversed(children)][::-1]
    grown, evacuated = ([result[step] for result in results] for step in (0, 1))
    final = [result[2] for result in results[1:]]
    for step in (grown, evacuated, final):
        assert [report["wrong"] for report in step] == [[]] * len(step)
        assert len({report["hash"] for report in step}) == 1
        assert {report["registrations"] for report in step} == ({LAYERS} if kind == "nixl" else {0})  # its slots
    assert grown[0]["layers"] == LAYERS
    assert grown[2]["moved"] >= LAYERS * SLOTS * ROW  # the new engine got all it holds from peers
    assert EMPTY not in np.array(grown[0]["rows"])
    assert (np.array(evacuated[0]["rows"])[:, :SLOTS] == EMPTY).all()
    assert np.array(final[0]["rows"]).shape == (LAYERS, 2 * SLOTS)


def within_a_budget(link, store, me, kind, rows):
    """Rows move in parts of at most so many on all ranks together; every state between is covered, and right."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    engine.state.budget = rows * ROW
    rank, maps, wrong = engine.groups.active.rank, [engine.state.placement], []

    def look():
        maps.append(engine.state.placement.check())
        wrong.extend(engine.memory.wrong(rank))

    layers = engine.rebalance(look)
    steps = [
        int(moved(*(each.physical_to_logical.reshape(LAYERS, 3, SLOTS) for each in pair), EXPERTS).sum())
        for pair in pairwise(maps)
    ]
    report = engine.report() | {"layers": layers, "steps": steps, "between": wrong}
    engine.close()
    return report


@pytest.mark.parametrize("kind", ["nixl", "p2p", "slots"])
def test_a_budget_cuts_layers_into_parts_that_arrive_beside_different_steps(processes, store, kind):
    another = StoreServer()
    both = [(store, 2), (another, 0)]
    started = [start(processes, each, within_a_budget, kind, rows=rows) for each, rows in both]
    cut, whole = ([child.result() for child in children] for children in started)
    another.close()
    assert [report["between"] + report["wrong"] for report in (*cut, *whole)] == [[]] * 6
    assert cut[0]["rows"] == cut[1]["rows"] == whole[0]["rows"]
    assert len(whole[0]["steps"]) == whole[0]["layers"] == cut[0]["layers"]
    assert max(whole[0]["steps"]) > 1 and sum(cut[0]["steps"]) == sum(whole[0]["steps"])
    assert len(cut[0]["steps"]) >= sum(whole[0]["steps"]) / 2 > 2 * LAYERS and max(cut[0]["steps"]) <= 2
    assert {report["registrations"] for report in cut} == ({LAYERS} if kind == "nixl" else {0})


def again_and_again(link, store, me, kind, broken):
    """Rebalances whose loads turn every time; with `broken` one rank lost rows, or the group, in each."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    layers = 0
    for number in range(18):
        if number == 6:
            first = settled(engine)
        engine.memory.turn = number
        engine.state.failed = broken == "rows" and me == "e1"
        if broken == "eplb":
            engine.groups.active.eplb.cut("injected") if me == "e1" else None
            engine.state.torn = True  # as a step says to all
        if broken == "device" and me == "e1":
            engine.groups.active.rows.cut("injected")
        layers += engine.rebalance()
    report = engine.report() | {"first": first, "last": settled(engine), "layers": layers, "made": engine.attempts}
    engine.close()
    return report


def settled(engine):
    """[descriptors, threads, registrations], when what was given up has had time to go."""
    engine.groups.reaper.wait_empty(Deadline(10, "the reaper"))
    gc.collect()
    counts = [sum(1 for _ in Path(f"/proc/self/{name}").iterdir()) for name in ("fd", "task")]
    return [*counts, getattr(engine.state.transfer, "registrations", 0)]


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("nixl", ""), ("p2p", ""), ("nixl", "rows"), ("p2p", "rows"), ("p2p", "eplb"), ("slots", "device")],
)
def test_rebalances_in_a_row_leave_nothing_behind_also_when_each_one_renews(processes, store, kind, broken):
    results = [child.result(60) for child in start(processes, store, again_and_again, kind, 2, broken=broken)]
    for result in results:
        assert result["wrong"] == [] and result["layers"] >= 18
        assert result["made"] == {"": 0, "device": 18}.get(broken, result["made"])
        assert all(now <= then for now, then in zip(result["last"], result["first"], strict=True)), (
            result["first"],
            result["last"],
        )
