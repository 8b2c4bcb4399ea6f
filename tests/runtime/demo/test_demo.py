"""The demo as a user runs it: what it says, what it returns, and what it leaves behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def demo(*arguments, **options):
    command = [sys.executable, "-m", "elasticfsm", "demo", "--no-live", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def block_signals():
    """As a parent may have left them: the demo must hear them all the same."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


@pytest.fixture
def place():
    """A short directory for everything temporary: a socket's path has hardly a hundred bytes."""
    made = Path(tempfile.mkdtemp(prefix="t"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def left(place):
    """What a run could leave behind besides processes: temporary directories with their sockets, shared memory."""
    return {str(path) for path in [*place.iterdir(), *Path("/dev/shm").iterdir()]}


def engines_of(parent):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "--parent" in words and words[words.index("--parent") + 1] == str(parent):
            found.append(int(path.parent.name))
    return found


def wait_until(ask, seconds=20.0):
    end = time.monotonic() + seconds
    while not ask() and time.monotonic() < end:
        time.sleep(0.05)
    return ask()


def test_the_token_check_turns_red_when_two_experts_are_swapped(tmp_path):
    report = tmp_path / "report.json"
    with demo("--path", "2", "--seconds", "2", "--break", "swap-experts", "--json", str(report)) as run:
        out, _ = run.communicate(timeout=165)
    assert run.returncode == 1, out
    found = json.loads(report.read_text())
    assert found["lost"] == 0
    assert len(found["wrong"]) > 0


def test_both_checks_turn_red_when_a_rebalance_drops_an_update(tmp_path):
    report = tmp_path / "report.json"
    broken = ("--break", "drop-update", "--verify-experts")
    with demo("--path", "1,2", "--seconds", "3", *broken, "--json", str(report)) as run:
        out, _ = run.communicate(timeout=165)
    assert run.returncode == 1, out
    found = json.loads(report.read_text())
    assert len(found["wrong"]) > 0
    assert found["experts_checked"] > found["experts_wrong"] > 0  # nor do the checksums of experts let it pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_demo_is_ended_while_it_grows(number, place):
    before = left(place)
    environment = {**os.environ, "TMPDIR": str(place)}
    with demo("--path", "1,2", "--seconds", "1", "--clients", "2", env=environment, preexec_fn=block_signals) as run:
        try:
            seen = any("preparing" in line for line in run.stdout)
            engines = engines_of(run.pid)
            run.send_signal(number)
            run.communicate(timeout=60)
        finally:
            run.kill()
    assert seen
    assert engines
    assert run.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in engines))
    assert wait_until(lambda: not left(place) - before)
