"""The launcher: what it starts, it ends; and a process whose parent dies does not stay."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elasticfsm.errors import EngineDied
from elasticfsm.runtime.launch import Launcher, die_with_parent, gently


def gone(pid, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_process_that_ends_is_reported_once_with_its_status_and_its_own_last_words(tmp_path):
    launcher = Launcher(tmp_path)
    log = launcher.log("e0")
    log.write_text("experts of layer 2 stay where they are: an earlier process of this id\n")
    try:
        launcher.start("e0", "nonsense", "op")  # refuses its address, and ends
        end, found = time.monotonic() + 30, {}
        while not found and time.monotonic() < end:
            found = launcher.exited()
            time.sleep(0.02)
        assert found == {"e0": 2}
        assert launcher.exited() == {}
        said = launcher.obituary("e0", 2)
        assert said.startswith("its process ended with status 2; its last words: ")
        assert ("is no address" in said, "earlier" in said) == (True, False)
        assert launcher.obituary("e0", -9) == "its process ended with status -9"  # who is killed cannot say why
        assert launcher.obituary("e7", 1) == "its process ended with status 1; it said nothing of it"
        os.utime(log, (0, 0))
        assert launcher.obituary("e0", -11) == "its process ended with status -11; it said nothing of it"
    finally:
        launcher.close()


def test_close_ends_what_runs(tmp_path):
    launcher = Launcher(tmp_path)
    launcher.start("e0", f"ipc://{tmp_path}/hub.sock", "op")  # nobody answers there: it waits
    pid = launcher.pid("e0")
    launcher.close(grace=0.5)
    launcher.close()
    assert gone(pid)


def test_an_engine_whose_parent_is_killed_ends(tmp_path):
    program = (
        "import sys, time, pathlib\n"
        "from elasticfsm.runtime.launch import Launcher\n"
        f"launcher = Launcher(pathlib.Path({str(tmp_path)!r}))\n"
        f"launcher.start('e0', 'ipc://{tmp_path}/hub.sock', 'op')\n"
        "print(launcher.pid('e0'), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        try:
            pid = int(parent.stdout.readline())
        finally:
            parent.kill()
    assert gone(pid)


def test_dying_with_a_parent_that_is_not_mine_is_refused():
    with pytest.raises(EngineDied, match="is gone"):
        die_with_parent(os.getpid())


def test_gentle_work_returns_its_result_and_its_error():
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    assert gently(lambda: os.getpriority(os.PRIO_PROCESS, 0)) == min(19, niceness + 5)
    assert os.getpriority(os.PRIO_PROCESS, 0) == niceness
    with pytest.raises(ZeroDivisionError):
        gently(lambda: 1 // 0)
