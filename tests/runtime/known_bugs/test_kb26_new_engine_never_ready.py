"""KB26: a new engine never becomes ready, and nobody has a deadline."""

import pytest

from elasticfsm.runtime.roster import Roster

pytestmark = pytest.mark.slow


def test_an_engine_that_never_comes_ends_the_operation_at_its_deadline(shared):
    deployment = shared.at(2)
    record = deployment.scale(3, launch=False, timeouts={"prepare": 1.0}).wait(30)
    assert record.phase == "aborted"
    assert len(deployment.members) == 2
    shared.rescale(3)


def test_an_engine_that_was_started_and_says_nothing_is_late_after_its_time():
    now = [0.0]
    roster = Roster(lambda engine, message: None, lambda: now[0])
    roster.expect(["e0"], "op-1")
    now[0] = 11.0
    assert roster.late(12) == []
    assert roster.late(10) == ["e0"]
