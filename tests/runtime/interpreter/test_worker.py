"""A layer that one worker cannot read is given up by all engines after the same step, and nothing is left of it."""

import pytest

from elasticfsm.errors import TransferError


def until(ask, seconds=20.0):
    import time

    end = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < end
        time.sleep(0.005)


def main_of(engine):
    return engine.interpreter.state_of("rebalance.main")


def make_due(engines):
    for engine in engines:
        engine.due.set()
        engine.interpreter.nudge()


def settled(engine):
    return engine.hands.performed.count("experts.settle: active")


@pytest.mark.parametrize("error", [TransferError("row"), SystemExit("thread")])
def test_one_lost_layer_is_confirmed_by_nobody_and_the_next_rebalance_succeeds(company, error):
    all_of = company("a", "b", "c")
    engines = list(all_of.engines.values())
    engines[1].hands.faults = {"experts.read": error}
    make_due(engines)
    until(lambda: all("experts.confirm: active" in engine.hands.performed for engine in engines))
    until(lambda: {main_of(engine) for engine in engines} == {"resting"})
    assert [settled(engine) for engine in engines] == [0, 0, 0]
    assert str(error) in engines[1].interpreter.errors()["rebalance.worker"]
    until(lambda: {engine.interpreter.state_of("rebalance.worker") for engine in engines} <= {"absent", "done"})
    engines[1].hands.faults = {}
    make_due(engines)
    until(lambda: [settled(engine) for engine in engines] == [1, 1, 1])
    until(lambda: {main_of(engine) for engine in engines} == {"resting"})


def test_a_plan_that_fails_turns_eplb_off_everywhere(company):
    all_of = company("a", "b")
    engines = list(all_of.engines.values())
    for engine in engines:
        engine.hands.faults = {"placement.plan": TransferError("no placement")}
    make_due(engines)
    until(lambda: {main_of(engine) for engine in engines} == {"off"})
    assert "no placement" in engines[0].interpreter.errors()["rebalance.main"]
