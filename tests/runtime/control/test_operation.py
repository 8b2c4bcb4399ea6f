"""The record of operations: one at a time, repeated requests join, others are refused."""

import pytest

from elasticfsm.errors import DeadlineExpired, OperationRunning
from elasticfsm.protocol import load
from elasticfsm.runtime.operation import ENDED, WORDS, Operations


@pytest.fixture
def operations():
    return Operations("run-1")


def begin(operations, size=4, **options):
    return operations.begin(size, 2, 5, **options)


def test_the_same_request_twice_joins_the_same_operation(operations):
    first, fresh = begin(operations)
    again, second = begin(operations)
    assert (again, fresh, second) == (first, True, False)


def test_another_request_is_refused_with_the_id_of_the_running_one(operations):
    first, _ = begin(operations)
    with pytest.raises(OperationRunning, match=first.id):
        begin(operations, size=3)
    assert operations.current is first


def test_an_ended_operation_makes_room_and_its_id_still_answers(operations):
    first, _ = begin(operations, operation="op-a")
    first.moved("done", "completed")
    second, fresh = begin(operations, size=2)
    assert fresh
    second.moved("aborted", "aborted")
    again, fresh = begin(operations, operation="op-a")
    assert (again, fresh) == (first, False)


def test_an_id_that_was_used_for_something_else_is_refused(operations):
    first, _ = begin(operations, operation="op-a")
    first.moved("done", "completed")
    with pytest.raises(OperationRunning, match="op-a"):
        begin(operations, size=3, operation="op-a")


def test_waiting_names_phase_and_state_when_its_deadline_passes(operations):
    operation, _ = begin(operations)
    operation.moved("building", "preparing")
    with pytest.raises(DeadlineExpired, match=r"preparing \(building\)"):
        operation.wait(0.01)
    operation.moved("done", "completed")
    assert operation.wait(0.01).phase == "completed"


def test_the_first_reason_is_kept(operations):
    operation, _ = begin(operations)
    operation.failed("the cause")
    operation.failed("a consequence")
    assert operation.status().error == "the cause"


@pytest.mark.parametrize("protocol", ["scale_up", "scale_down"])
def test_every_phase_and_end_of_the_coordinator_has_a_word_for_operators(protocol):
    states = load(protocol).machines["coordinator"].states.values()
    assert {state.phase or state.name for state in states} <= set(WORDS)
    assert {WORDS[state.name] for state in states if state.end} == ENDED
