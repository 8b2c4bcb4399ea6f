"""KB45: the same request comes twice; the client gave up, the operation went on."""

import pytest

pytestmark = pytest.mark.slow


def test_the_same_request_again_joins_the_operation_also_after_it_has_ended(shared):
    deployment = shared.at(2)
    operation = deployment.scale(3, operation="op-asked-twice")
    assert deployment.scale(3, operation="op-asked-twice") is operation
    assert operation.wait(60).phase == "completed"
    again = deployment.scale(3, operation="op-asked-twice")
    assert (again.id, again.status().phase) == ("op-asked-twice", "completed")
    assert len(deployment.members) == 3
