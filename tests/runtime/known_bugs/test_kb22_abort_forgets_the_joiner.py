"""KB22: abort forgets the engine that is just joining, which then waits for ever."""

import pytest

pytestmark = pytest.mark.slow


def test_an_abort_ends_the_engine_that_was_joining_also_when_it_is_slow_to_undo(shared):
    shared.survives("scale_up/new/undoing/delay", "aborted")  # its process is gone: the cell looks for that
