"""KB37: experts are balanced no more after an operation."""

import pytest

from elasticfsm.runtime.faults.feeder import Feeder

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("cell", ["scale_down/remaining/prepared/stop", "scale_up/existing/building/exception"])
def test_rebalances_go_on_after_an_operation_that_completed_and_after_one_that_was_undone(shared, cell):
    shared.survives(cell, "completed", "aborted")
    deployment = shared.rig.deployment

    def rebalances():
        return [deployment.counters[engine]["rebalances"] for engine in deployment.members]

    before = rebalances()
    feeder = Feeder(deployment, shared.rig.questions)
    feeder.start()
    more = shared.rig.until_clean(lambda: [] if all(map(int.__gt__, rebalances(), before)) else [str(before)], 20)
    assert feeder.stop(30) == []
    assert more == []
