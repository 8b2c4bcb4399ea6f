"""KB24: two operations at once share one store and one state."""

import pytest

from elasticfsm.errors import OperationRunning

pytestmark = pytest.mark.slow


def test_a_second_operation_is_refused_while_one_runs_and_leaves_it_alone(shared):
    deployment = shared.at(2)
    operation = deployment.scale(3)
    with pytest.raises(OperationRunning, match=operation.id):
        deployment.scale(4)
    assert operation.wait(60).phase == "completed"
