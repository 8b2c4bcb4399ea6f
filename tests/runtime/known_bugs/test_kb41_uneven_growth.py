"""KB41: wrong rank arithmetic where sizes are no multiples of each other, from one and to one."""

import pytest

from elasticfsm.runtime.faults.feeder import Feeder
from elasticfsm.runtime.faults.rig import Rig

pytestmark = pytest.mark.slow


def test_one_to_three_to_two_to_one_keeps_every_token():
    rig = Rig(0.2)
    try:
        rig.learn_answers()
        deployment = rig.open(1, slots=16)
        feeder = Feeder(deployment, rig.questions)
        feeder.start()
        for size in (3, 2, 1):
            assert deployment.scale(size).wait(60).phase == "completed"
        assert feeder.stop(30) == []
        assert rig.judge(feeder.streams, False) == []
        assert rig.agree(deployment, deployment.members) == []
        assert rig.shut() == []
    finally:
        rig.close()
