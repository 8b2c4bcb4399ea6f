"""Real engines change their number while they serve: no request is lost, and every token is the reference's."""

import os
import re
import signal

import pytest

from elasticfsm.errors import OperationRunning, RequestRefused

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("transfer", ["nixl", "p2p"])
def test_one_engine_becomes_two_and_one_again_while_requests_run(running, transfer):
    deployment = running.start(1, transfer=transfer)
    running.request(4, 80)
    grown = deployment.scale(2)
    assert grown.wait(60).phase == "completed"
    assert deployment.status().admitted == ("e0", "e1")
    running.request(6, 80)
    assert deployment.scale(1).wait(60).phase == "completed"
    running.request(2)
    running.finish()
    assert (deployment.members, deployment.generation) == (("e0",), 3)
    assert sum(moved[transfer] for moved in deployment.moved.values()) > 1_000_000
    running.close()
    assert running.valid() == []


def test_the_first_engine_may_leave_and_its_requests_go_on_elsewhere(running):
    deployment = running.start(2)
    streams = running.request(6, 100)
    assert deployment.scale(1, remove=["e0"]).wait(60).phase == "completed"
    running.finish()
    assert deployment.members == ("e1",)
    assert sum(stream.handovers for stream in streams) >= 1
    running.close()
    assert running.valid() == []


def test_a_cancelled_growth_leaves_the_old_size_serving_and_a_next_one_completes(running):
    deployment = running.start(1)
    running.request(2, 60)
    operation = deployment.scale(2)
    with pytest.raises(OperationRunning, match=operation.id):
        deployment.scale(3)
    assert deployment.scale(2) is operation
    operation.cancel()
    assert operation.wait(60).phase == "aborted"
    assert (deployment.members, deployment.generation) == (("e0",), 1)
    running.request(2)
    assert deployment.scale(2).wait(60).phase == "completed"
    assert deployment.members == ("e0", "e2")  # ids are never used again
    running.finish()


@pytest.mark.parametrize("size", [0, -1, 9])
def test_an_impossible_size_is_refused_and_changes_nothing(running, size):
    deployment = running.start(1, largest=8)
    with pytest.raises(RequestRefused, match="valid sizes: 1 to 8"):
        deployment.scale(size)
    with pytest.raises(RequestRefused, match="cannot remove"):
        deployment.scale(1, remove=["e7"])
    assert deployment.operations.current is None
    assert deployment.scale(1).wait(1).phase == "completed"


def test_a_new_engine_that_dies_while_it_boots_costs_nothing(running):
    deployment = running.start(1)
    running.request(3, 100)
    operation = deployment.scale(2)
    running.until(lambda: deployment._launcher.pid("e1"))
    deployment._launcher.kill("e1")
    record = operation.wait(60)
    assert (record.phase, deployment.failed) == ("aborted", "")
    assert "e1" in record.error
    running.finish()


def test_the_death_of_a_serving_engine_ends_every_request_with_one_outcome_and_is_said(running):
    deployment = running.start(2)
    streams = running.request(4, 400)
    running.until(lambda: all(stream.tokens for stream in streams))
    deployment._launcher.kill("e1")
    assert {stream.wait(30) for stream in streams} == {"failed"}
    assert "serving engine e1 died" in deployment.failed
    with pytest.raises(RequestRefused, match="has ended"):
        deployment.scale(3)


@pytest.mark.parametrize("victims", [["e0"], ["e0", "e1"]], ids=["one", "all"])
def test_the_death_of_serving_engines_during_growth_ends_the_operation_as_failed(running, victims):
    deployment = running.start(2)
    running.request(2, length=200)
    handle = deployment.scale(3)
    running.until(lambda: handle.record.detail == "building")
    for engine in victims:
        os.kill(deployment.status().pids[engine], signal.SIGKILL)
    record = handle.wait(30)
    assert record.phase == "failed"
    assert re.search(r"engine e[01]", record.error), record.error
    assert {stream.wait(10) for stream in running.streams} == {"failed"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_deployment_whose_own_thread_dies_says_failed_and_keeps_nobody_waiting(running, monkeypatch):
    deployment = running.start(1)
    (stream,) = running.request(1, length=400)
    handle = deployment.scale(2)

    def broken() -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(deployment, "_watch", broken)
    record = handle.wait(30)
    assert record.phase == "failed"
    assert "on purpose" in record.error
    assert stream.wait(30) == "failed"
    with pytest.raises(RequestRefused, match="on purpose"):
        deployment.submit([1], 1)
