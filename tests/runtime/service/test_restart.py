"""A coordinator that is killed while an operation runs: engines serve on, the next one takes them over and decides."""

import subprocess
import sys
from pathlib import Path

import pytest
from served import gone

from elasticfsm.errors import RequestRefused
from elasticfsm.journal import read
from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.engine.reference import check_tokens
from elasticfsm.runtime.engine.tokenizer import END, encode
from elasticfsm.runtime.ledger import Ledger
from elasticfsm.runtime.models import PSALTER
from elasticfsm.trace import validate

pytestmark = pytest.mark.slow

TEXT = "Blessed is the man "

# A coordinator that dies as soon as a record with that detail is on the disk, before anything follows from it.
PROGRAM = """
import os, signal, sys
from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.engine.tokenizer import encode
from elasticfsm.runtime.models import PSALTER

directory, size, target, detail = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
options = Options(slots=16, directory=directory, keep=60.0, eplb_interval=60)
deployment = Deployment.start(PSALTER, size, options) if size else Deployment.resume(directory)
if deployment.operations.current is not None:
    deployment.operations.current.wait(60)
write = deployment.ledger.write

def deadly(record):
    write(record)
    if record.detail == detail:
        os.kill(os.getpid(), signal.SIGKILL)

deployment.operations._keep = deadly
deployment.submit(encode("Blessed is the man "), 900)
print(*deployment._launcher.pids().values(), flush=True)
deployment.scale(target).wait(100)
"""


def killed(directory: Path, size: int, target: int, detail: str) -> list[int]:
    """Run a coordinator from `size` engines (0: those that are there) until it dies in that state."""
    command = [sys.executable, "-c", PROGRAM, str(directory), str(size), str(target), detail]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -9, done.stderr
    assert Ledger(directory).operation().detail == detail
    return [int(pid) for pid in done.stdout.split()]


@pytest.fixture
def short(tmp_path_factory):
    """A directory with a path short enough for sockets, whose engines are gone after the test."""
    directory = tmp_path_factory.mktemp("d")
    yield directory
    standing = Ledger(directory).standing()
    if standing is not None:  # the test failed
        Deployment.resume(directory).close()


def test_what_a_killed_coordinator_left_is_decided_by_what_the_engines_answer(short):
    """Three die in a row: nothing was decided, to grow was decided, to shrink was; the founder serves through all."""
    (founder,) = killed(short, 1, 2, "building")
    with pytest.raises(RequestRefused, match="e0"):
        Deployment.start(PSALTER, 1, Options(slots=16, directory=str(short), keep=60.0))
    killed(short, 0, 2, "completing")
    (_, grown) = sorted(killed(short, 0, 1, "retiring"))
    with Deployment.resume(short) as deployment:
        record = deployment.operations.current.wait(60)
        assert (record.instance_id, record.safe_to_delete) == (deployment.instance, record.engines_to_remove)
        past = [(each.record.requested_size, each.record.phase) for each in deployment.operations.past]
        assert [*past, (1, record.phase)] == [(2, "aborted"), (2, "completed"), (1, "completed")]
        assert deployment.generation == 3
        assert list(deployment.status().pids) == list(deployment.members) == list(deployment.router.admitted)
        assert deployment.router.outcomes["failed"] == 1  # whose stream the last router held
        streams = [deployment.submit(encode(TEXT), 40, (END,)) for _ in range(3)]
        assert {stream.wait(60) for stream in streams} == {"finished"}
        assert check_tokens(PSALTER, [(stream.prompt, stream.tokens) for stream in streams]) == []
        journals = deployment.journals
    assert gone(founder) and gone(grown)
    assert [str(finding) for finding in validate(journals)] == []
    assert "adopted" in {event["event"] for event in read(journals)["e0"]}
    assert Ledger(short).standing() is None
    with pytest.raises(RequestRefused, match="no deployment is recorded"):
        Deployment.resume(short)
