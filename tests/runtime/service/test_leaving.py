"""Engines that are told to end: SIGTERM removes them first, and one that has left stays until it is told."""

import os
import signal

import pytest
from served import Served, gone, until

from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.engine.reference import check_tokens
from elasticfsm.runtime.engine.tokenizer import END, encode
from elasticfsm.runtime.models import PSALTER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    journal = tmp_path_factory.mktemp("journal")
    options = Options(slots=16, largest=4, journal=str(journal), keep_retired=True)
    with Deployment.start(PSALTER, 2, options) as deployment:
        made = Served(deployment)
        try:
            yield made
        finally:
            made.server.close()


def test_sigterm_removes_an_engine_by_an_operation_of_its_own_and_loses_nothing(pair):
    deployment = pair.deployment
    streams = [deployment.submit(encode("The king "), 80, (END,)) for _ in range(4)]
    pid = deployment.status().pids["e0"]
    os.kill(pid, signal.SIGTERM)
    until(lambda: deployment.members == ("e1",))
    record = deployment.operations.current.wait(60)
    assert (record.phase, record.engines_to_remove, record.safe_to_delete) == ("completed", ("e0",), ("e0",))
    assert {stream.wait(60) for stream in streams} == {"finished"}
    assert check_tokens(PSALTER, [(stream.prompt, stream.tokens) for stream in streams]) == []
    assert gone(pid)  # it was asked to end, so it does
    assert (deployment.failed, deployment.retirements.waiting) == ("", ())


def test_the_last_engine_cannot_be_removed_and_stays(pair):
    deployment = pair.deployment
    os.kill(deployment.status().pids["e1"], signal.SIGTERM)
    log = deployment._launcher.log("e1")
    until(lambda: "stays: size 0 is not a number of engines" in log.read_text())
    assert deployment.members == ("e1",)
    assert deployment.submit(encode("The king "), 5).wait(30) == "finished"


def test_an_engine_that_left_stays_up_alive_and_not_ready_until_it_is_told_to_end(pair):
    deployment = pair.deployment
    assert pair.scale(2, add_engines=["pod-1"]).code == 200  # named as whoever starts engines names them
    assert pair.raw("GET", "/engines/pod-1/ready")[0] == 200
    assert pair.raw("POST", "/engines/pod-1/exit")[0] == 409  # it serves
    assert pair.scale(1, retire_engines=["pod-1"]).code == 200
    pid = deployment.roster.get("pod-1").pid
    assert pair.raw("GET", "/engines/pod-1/health")[0] == 200
    assert pair.raw("GET", "/engines/pod-1/ready")[:2] == (503, "retired\n")
    assert pair.status()["safe_to_delete"] == ["pod-1"]
    assert pair.metric('elasticfsm_engines{state="retired"}') == 1
    os.kill(pid, 0)
    assert pair.raw("POST", "/engines/pod-1/exit")[0] == 202
    assert gone(pid)
    assert deployment.failed == ""
    assert deployment.submit(encode("The king "), 5).wait(30) == "finished"


def test_a_deployment_that_is_ending_takes_neither_requests_nor_operations_and_says_so(pair, monkeypatch):
    monkeypatch.setattr(pair.deployment.router, "_closed", "")
    pair.deployment.router.shut("told to end")
    assert pair.client.post("/v1/completions", {"prompt": "The king "}).code == 503
    assert (pair.scale(2).code, pair.raw("GET", "/ready")[0], pair.raw("GET", "/health")[0]) == (503, 503, 200)


def test_a_second_sigterm_is_the_crash_path_and_is_said_at_once(pair):
    deployment = pair.deployment
    pid, log = deployment.status().pids["e1"], deployment._launcher.log("e1")
    deployment.retirements.tick = lambda deployment: None  # nobody answers it any more
    asked = log.read_text().count("asks to be removed")
    os.kill(pid, signal.SIGTERM)
    until(lambda: log.read_text().count("asks to be removed") == asked + 1)
    os.kill(pid, signal.SIGTERM)
    assert gone(pid)
    until(lambda: deployment.failed)
    assert "e1" in deployment.failed
    assert pair.raw("GET", "/health")[0] == 503
    assert pair.scale(2).code == 503
