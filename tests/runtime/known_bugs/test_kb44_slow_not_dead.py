"""KB44: an engine is stopped, not dead: deadlines pass, it wakes, and goes on with what is long over."""

import pytest

pytestmark = pytest.mark.slow


def test_an_engine_that_stops_and_wakes_in_time_costs_nothing(shared):
    shared.survives("scale_up/existing/voting/stop", "completed", "aborted")


def test_an_engine_that_does_not_wake_in_time_is_killed_before_its_rank_is_used_again(shared):
    shared.survives("scale_up/new/joining/hang", "aborted")  # no process of it is left: the cell looks for that
    shared.rescale(3)
