"""KB19: a load report from before a scale-down comes after it. Whom requests go to is decided by operations only."""

import pytest

pytestmark = pytest.mark.slow


def test_a_heartbeat_of_a_removed_engine_that_comes_late_brings_it_no_request(shared):
    deployment = shared.at(3)
    leaver = deployment.members[-1]
    stale = deployment.status().engines[leaver]
    assert deployment.scale(2, [leaver]).wait(60).phase == "completed"
    deployment._receive(leaver, stale)
    assert deployment.status().admitted == deployment.members
    assert leaver not in deployment.status().engines
    streams = [deployment.submit(shared.rig.questions[0], 4) for _ in range(6)]
    assert {stream.owner for stream in streams} <= set(deployment.members)
    assert {stream.wait(30) for stream in streams} == {"finished"}
