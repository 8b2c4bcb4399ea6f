"""KB42: what is done in the background fails, and nobody hears of it."""

import pytest

pytestmark = pytest.mark.slow


def test_a_step_that_fails_in_the_background_is_said_and_undone(shared):
    said = shared.survives("scale_up/existing/rehearsing/exception", "aborted")
    assert "injected into scale_up.existing in `rehearsing`" in said
