"""KB25: the gate for requests closes before the commit and opens only on success. There is none here."""

import pytest

pytestmark = pytest.mark.slow


def test_requests_are_answered_before_during_and_after_an_operation_that_breaks_at_its_commit(shared):
    shared.survives("scale_up/new/joining/exception", "aborted")  # with requests all the time: the cell judges each
    stream = shared.rig.deployment.submit(shared.rig.questions[0], 4)
    assert stream.wait(30) == "finished"
