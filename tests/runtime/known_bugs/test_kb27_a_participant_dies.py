"""KB27: a participant dies. A fixed sample of the fault suite: `make faults` runs every state of every role."""

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        ("scale_up/new/building/kill", "aborted"),
        ("scale_up/new/joining/kill", "aborted"),
        ("scale_up/rank 0/voting/kill", "failed"),
        ("scale_down/removing/evacuated/kill", "failed"),
        ("scale_up/coordinator/voting/kill", ""),
    ],
)
def test_whoever_dies_the_operation_ends_as_the_rules_say_and_nothing_is_left(shared, cell, outcome):
    shared.survives(cell, *([outcome] if outcome else ["completed", "aborted"]))
