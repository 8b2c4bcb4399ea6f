"""KB15: the store's owner leaves first. Nothing that serves needs the store; the next operation brings another one."""

import pytest

pytestmark = pytest.mark.slow


def test_a_store_that_is_gone_before_the_vote_stops_nobody_and_the_next_operation_has_another_one(shared):
    shared.survives("scale_up/coordinator/voting/store", "completed")
    shared.rescale(2)
