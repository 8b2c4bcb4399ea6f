"""Engines that somebody else starts: who comes for the running operation is let in, everybody else is turned away."""

import subprocess
import sys
from pathlib import Path

import pytest

from elasticfsm.runtime.fingerprint import CODE

pytestmark = pytest.mark.slow


OTHER = """
from elasticfsm.runtime import fingerprint
fingerprint.CODE = "0.0.9+0123456789ab"
from elasticfsm.cli import main
main()
"""


def engine(deployment, operation, name, *python):
    command = [sys.executable, *(python or ("-m", "elasticfsm")), "engine", "--join", deployment.address]
    command += ["--operation", operation, "--engine-id", name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def turned_away(process):
    out, _ = process.communicate(timeout=60)
    assert process.returncode in {1, 2}, out
    return out


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:*"])
def test_an_engine_started_by_somebody_else_joins_the_operation_it_was_started_for(running, address):
    deployment = running.start(1, address=address)
    running.request(2, 100)
    operation = deployment.scale(2, launch=False)
    (name,) = [each for each in operation.status().participants if each not in deployment.members]
    with engine(deployment, operation.id, name) as joiner:
        try:
            assert operation.wait(60).phase == "completed"
            running.request(4)
            running.finish()
            running.close()
            joiner.communicate(timeout=30)
        finally:
            joiner.kill()
    assert joiner.returncode == 0


def test_engines_for_another_operation_or_under_a_strange_name_or_with_other_code_are_turned_away(running):
    deployment = running.start(1)
    operation = deployment.scale(2, launch=False)
    (name,) = [each for each in operation.status().participants if each not in deployment.members]
    strangers = [engine(deployment, "op-of-yesterday", name), engine(deployment, operation.id, "e99")]
    texts = [turned_away(stranger) for stranger in strangers]
    assert f"came for operation op-of-yesterday, expected {operation.id}" in texts[0]
    assert "no operation expects an engine of this id" in texts[1]
    assert operation.record.phase == "preparing"
    text = turned_away(engine(deployment, operation.id, name, "-c", OTHER))
    record = operation.wait(60)  # it was the one that is waited for
    assert (record.phase, record.cause) == ("aborted", "died")
    for said in (text, record.error):
        assert f"engine {name}: it runs elasticfsm 0.0.9+0123456789ab, this deployment {CODE}: all must run" in said
    assert (deployment.members, deployment.failed) == (("e0",), "")


def test_an_engine_that_was_killed_before_it_said_where_it_is_leaves_no_socket(running, zygote):
    deployment = running.fork_from(zygote).start(1)
    operation = deployment.scale(2, launch=False)
    (name,) = [each for each in operation.status().participants if each not in deployment.members]
    left = Path(deployment.address.removeprefix("ipc://")).with_name(f"{name}.sock")
    left.touch()  # bound, but never announced
    operation.cancel()
    assert operation.wait(60).phase == "aborted"
    assert not left.exists()
