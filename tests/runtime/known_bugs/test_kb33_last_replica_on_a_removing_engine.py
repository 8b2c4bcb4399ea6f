"""KB33: an expert's last replica lives on an engine that is removed."""

import pytest
from deployed import BUSY, totals

from elasticfsm.runtime.experts.policy.removal import orphans

pytestmark = pytest.mark.slow


def test_experts_that_only_the_leaving_engine_holds_are_moved_before_it_leaves(running):
    deployment = running.start(3, **BUSY | {"eplb": "off", "slots": 8})
    running.request(4, 60)
    running.until(lambda: deployment.placement is not None)
    before = deployment.placement
    assert orphans(before, [1]) > 0
    assert deployment.scale(2, remove=["e1"]).wait(60).phase == "completed"
    running.request(2, 40)
    running.until(lambda: deployment.placement.world_size == 2)  # one of three may still be the last that was told
    assert deployment.placement.check() is not before  # every expert of every layer has a slot
    running.right()
    assert totals(deployment, "layers_moved")["e0"] > 0
