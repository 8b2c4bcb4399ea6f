"""Experts move all the time while real engines change their number; every slot is compared with the checkpoint."""

import os
import random

import pytest
from deployed import BUSY, totals

from elasticfsm.journal import read
from elasticfsm.runtime.bench.rescales import path
from elasticfsm.runtime.experts.policy.settings import Policy
from elasticfsm.runtime.faults.fault import Fault, Post
from elasticfsm.runtime.faults.trigger import PLAN

pytestmark = pytest.mark.slow

RESCALES = int(os.environ.get("ELASTICFSM_RESCALES", "3"))  # in a row; more of them take minutes


@pytest.fixture
def running(running, zygote):
    return running.fork_from(zygote)


@pytest.mark.parametrize(("eplb", "smallest"), [("async", 1), ("sync", 2)])
def test_rescales_in_a_row_with_experts_on_the_move_keep_every_token_and_every_expert(running, eplb, smallest):
    seed = random.SystemRandom().randrange(1 << 16)
    sizes = path(RESCALES, seed, smallest, 3 if RESCALES < 20 else 4)
    print(f"seed {seed}: {sizes}")
    more = {"slots": 16}
    if eplb == "sync":  # many rows, each of which arrives beside a step of its own
        more = {"eplb_step_bytes": 100_000, "policy": Policy(kind="balanced")}
    deployment = running.start(sizes[0], eplb=eplb, **BUSY | more)
    for size in sizes[1:]:
        running.request(3, 40)
        assert deployment.scale(size).wait(60).phase == "completed"
    running.request(2, 40)
    running.right()
    assert max(totals(deployment, "layers_moved").values()) >= 4


def test_rebalances_are_due_at_the_same_step_on_all_engines(running):
    deployment = running.start(2, **BUSY)
    running.request(4, 80)
    assert deployment.scale(3).wait(60).phase == "completed"
    running.request(6, 80)
    running.right()
    due = [due_steps(events) for engine, events in read(running.directory).items() if engine != "coordinator"]
    assert max(map(len, due)) >= 3
    shared = set.intersection(*(set(each) for each in due[:2]))
    late = {generation for generation, _ in due[2]}
    assert shared == set(due[0]) == set(due[1])
    assert set(due[2]) == {each for each in shared if each[0] in late}


def due_steps(events):
    """(generation, number of the next step) at each `due` that the machine took."""
    found, at = [], ("", 0)
    for event in events:
        if event["event"] == "agreed":
            at = (event["of"], event["number"] + 1)
        elif event["event"] == "receive" and event.get("message") == "due":
            found.append(at)
    return found


def test_an_operation_may_begin_at_every_layer_of_a_running_rebalance(running, tmp_path):
    hold = tmp_path / "hold"
    hold.mkdir()
    layers = range(4)
    for layer in layers:
        (hold / f"go-{layer}").touch()
    deployment = running.start(2, faults=(f"hold={hold}",), **BUSY)
    for layer in layers:
        size = 5 - len(deployment.members)
        (hold / f"layer-{layer}").unlink(missing_ok=True)
        (hold / f"go-{layer}").unlink()
        running.request(4, 60)
        running.until((hold / f"layer-{layer}").exists)
        operation = deployment.scale(size)
        wanted = "voting" if size == 3 else "aligning"
        running.until(lambda operation=operation, wanted=wanted: wanted in dict(operation.status().history))
        assert not operation.ended  # it waits for the layer that is in flight
        (hold / f"go-{layer}").touch()
        assert operation.wait(60).phase == "completed"
    running.right()


def test_one_engine_without_nixl_makes_all_use_p2p(running):
    deployment = running.start(2, transfer="auto", faults=("no-nixl",), **BUSY)
    running.request(4, 80)
    assert deployment.scale(3).wait(60).phase == "completed"
    running.request(4, 80)
    running.right()
    moved = sum(deployment.moved.values(), start=type(deployment.moved["e0"])())
    assert moved["p2p"] > 1_000_000
    assert moved["nixl"] == 0
    said = {e: [x["text"] for x in events if x["event"] == "transfer"] for e, events in read(running.directory).items()}
    assert "NIXL is not installed" in said["e1"][0]
    assert "some member cannot use NIXL" in said["e0"][0]


def test_off_moves_experts_only_where_a_rescale_asks_for_it(running):
    deployment = running.start(3, eplb="off", **BUSY)
    running.request(3, 40)
    running.finish()
    assert set(totals(deployment, "layers_moved").values()) == {0}
    assert deployment.scale(2).wait(60).phase == "completed"
    running.right()
    assert max(totals(deployment, "layers_moved").values()) >= 1


@pytest.mark.parametrize("state", ["planning", "confirming"])
def test_a_rebalance_that_broke_off_does_not_keep_an_engine_from_leaving(running, tmp_path, state):
    post = Post(tmp_path)
    deployment = running.start(3, faults=(f"{PLAN}{tmp_path}",), **BUSY)
    running.serve_until(lambda: min(totals(deployment, "rebalances").values(), default=0) >= 1)
    post.arm(Fault(kind="exception", machine="rebalance.main", state=state, engines=("e1",)))

    def off():
        return {
            engine for engine, each in deployment.status().engines.items() if each.states["rebalance.main"] == "off"
        }

    running.serve_until(lambda: off() == {"e0", "e1", "e2"})  # their eplb group is closed
    assert deployment.scale(2, remove=["e0"]).wait(60).phase == "completed"
    assert deployment.members == ("e1", "e2")
    assert deployment.scale(3).wait(60).phase == "completed"
    running.request(2, 40)
    running.right()
