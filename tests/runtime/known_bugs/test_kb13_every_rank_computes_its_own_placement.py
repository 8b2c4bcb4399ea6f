"""KB13: every rank computes its own placement from equal loads and breaks ties in its own way."""

import pytest
from deployed import BUSY, totals

pytestmark = pytest.mark.slow


def test_a_rank_that_would_place_experts_elsewhere_follows_rank_0_and_is_followed_as_rank_0(running):
    deployment = running.start(3, faults=("other-ties",), **BUSY)
    running.request(4, 60)
    running.until(lambda: totals(deployment, "rebalances").get("e1", 0) >= 1)
    assert deployment.scale(2, remove=["e0"]).wait(60).phase == "completed"
    assert deployment.members[0] == "e1"  # its way to break ties is everybody's now
    before = totals(deployment, "rebalances")["e1"]
    running.serve_until(lambda: totals(deployment, "rebalances")["e1"] > before)
    running.right()
    assert set(totals(deployment, "rebalances_broken").values()) == {0}
