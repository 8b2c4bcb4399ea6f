"""KB20: a removed engine does not end, and the next one finds its identity taken."""

import os
import signal

import pytest

from elasticfsm.runtime.faults.fault import Fault

pytestmark = pytest.mark.slow


def test_a_removed_engine_that_does_not_end_is_killed_and_its_id_is_never_used_again(shared):
    deployment = shared.at(3)
    leaver = deployment.members[-1]
    pid = deployment.status().pids[leaver]
    fault = Fault(kind="delay", machine="scale_down.coordinator", state="closing", seconds=1.0)
    shared.rig.post.arm(fault)
    operation = deployment.scale(2, [leaver])
    shared.rig.until_clean(lambda: [] if shared.rig.post.claimed() else ["waiting"], 30)
    os.kill(pid, signal.SIGSTOP)  # it hears neither `exit` nor SIGTERM
    assert operation.wait(60).phase == "completed"
    assert pid not in shared.rig.zygote.living()
    shared.rescale(3)
    assert leaver not in deployment.members
