"""KB23: the new size is recorded before the new engines are ready, and several layers hold a size each."""

import pytest

from elasticfsm.runtime.faults.fault import Fault

pytestmark = pytest.mark.slow


def sizes(deployment):
    """Every size that something in the coordinator's process knows."""
    status = deployment.status()
    sizes = {len(deployment.members), len(status.admitted), status.operation.active_size}
    return sizes | {status.engines[engine].counters["size"] for engine in status.admitted}


def test_every_size_is_the_old_one_until_the_new_engines_serve_and_the_new_one_afterwards(shared):
    deployment = shared.at(2)
    shared.rig.post.arm(Fault(kind="delay", machine="scale_up.new", state="building", seconds=1.0))
    operation = deployment.scale(3)
    shared.rig.until_clean(lambda: [] if shared.rig.post.claimed() else ["waiting"], 30)
    assert (operation.record.phase, sizes(deployment)) == ("preparing", {2})
    assert operation.wait(60).phase == "completed"
    assert shared.rig.until_clean(lambda: [] if sizes(deployment) == {3} else [str(sizes(deployment))]) == []
