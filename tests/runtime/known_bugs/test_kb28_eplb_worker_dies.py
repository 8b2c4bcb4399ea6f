"""KB28: the worker that moves experts dies; a drain waits for it for ever."""

import pytest
from deployed import BUSY, totals

pytestmark = pytest.mark.slow


def test_a_worker_that_dies_is_said_given_up_by_all_and_started_again(running):
    deployment = running.start(2, faults=("worker-exits",), **BUSY)
    running.request(4, 80)
    running.until(lambda: min(totals(deployment, "rebalances").values(), default=0) >= 1)
    assert deployment.scale(3).wait(60).phase == "completed"
    running.request(2, 60)
    broken = totals(deployment, "rebalances_broken")
    assert broken["e0"] == broken["e1"] >= 1
    running.right()
    said = [event for event in running.events("e1") if "injected" in str(event.get("error"))]
    assert {event["machine"] for event in said} == {"rebalance.worker"}
    told = {e: [x["text"] for x in running.events(e) if "stay where they are" in str(x)] for e in ("e0", "e1")}
    assert "another engine could not read" in told["e0"][0]
    assert "SystemExit: injected" in told["e1"][0]


def test_a_rescale_ends_although_no_rebalance_ever_succeeds(running):
    deployment = running.start(2, faults=("worker-never",), **BUSY)
    running.request(4, 80)
    running.until(lambda: min(totals(deployment, "rebalances_broken").values(), default=0) >= 2)
    assert deployment.scale(3).wait(60).phase == "completed"
    emptied = deployment.scale(2, remove=["e0"]).wait(60)  # what only e0 holds cannot be moved
    assert (emptied.phase, deployment.members) == ("aborted", ("e0", "e1", "e2"))
    assert "still hold experts: evacuate them first" in emptied.error
    running.request(3, 60)
    running.right()
    assert set(totals(deployment, "rebalances").values()) == {0}


def test_with_a_worker_that_never_comes_back_experts_stay_requests_go_on_and_a_rescale_ends_undone(running):
    deployment = running.start(2, faults=("worker-hangs",), timescale=0.1, deadlines={"prepare": 8.0}, **BUSY)
    running.request(4, 60)

    def states():
        return {engine: each.states.get("rebalance.main") for engine, each in deployment.status().engines.items()}

    running.until(lambda: states() == {"e0": "off", "e1": "ceasing"})
    record = deployment.scale(3).wait(40)
    assert (record.phase, deployment.members) == ("aborted", ("e0", "e1"))
    running.request(3, 40)
    running.finish()
    assert set(totals(deployment, "layers_moved").values()) == set(totals(deployment, "experts_wrong").values()) == {0}
