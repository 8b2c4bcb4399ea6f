"""KB18: a notification is lost, comes twice, or comes in the next operation."""

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", ["drop", "duplicate", "late"])
def test_a_message_that_is_lost_doubled_or_late_is_acted_on_once(shared, fault):
    shared.survives(f"scale_up/new/<prepared>/{fault}", "completed")


def test_a_message_of_the_operation_before_is_dropped_and_counted(shared):
    deployment = shared.at(2)
    before = deployment.status().dropped.get("other operation", 0)
    from elasticfsm.runtime import wire

    old = wire.Protocol(
        operation="op-before",
        sender=deployment.members[0],
        name="switched",
        machine="scale_up.existing",
        receiver="scale_up.coordinator",
    )
    deployment._receive(deployment.members[0], old)
    assert deployment.status().dropped["other operation"] == before + 1
