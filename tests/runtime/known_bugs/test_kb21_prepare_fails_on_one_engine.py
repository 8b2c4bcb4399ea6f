"""KB21: prepare fails on one engine; the others keep the operation open and refuse every later one."""

import pytest

pytestmark = pytest.mark.slow


def test_a_failed_prepare_is_undone_by_all_and_the_next_operation_completes(shared):
    assert "injected" in shared.survives("scale_up/existing/building/exception", "aborted")
    shared.rescale(3)
