"""KB31: requests that run on a removed engine are dropped."""

import pytest

from elasticfsm.runtime.faults.feeder import Feeder

pytestmark = pytest.mark.slow


def test_requests_of_the_engine_that_leaves_go_on_elsewhere_with_the_same_tokens(shared):
    deployment = shared.at(3)
    leaver = deployment.members[0]
    feeder = Feeder(deployment, shared.rig.questions, 9)
    feeder.start()
    assert deployment.scale(2, [leaver]).wait(60).phase == "completed"
    assert feeder.stop(30) == []
    assert sum(stream.handovers for stream in feeder.streams) >= 1
    assert shared.rig.judge(feeder.streams, False) == []
