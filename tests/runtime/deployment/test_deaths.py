"""Which dead engine ends a deployment, and which one is named for it."""

import time
from types import SimpleNamespace

from elasticfsm.runtime.deployment.deaths import MEANWHILE, _fail_for_the_dead

E1, E2 = {"e1": "killed"}, {"e2": "killed"}


def after(deaths, *, spares=(), phase="committing", ended=0.0):
    """What a deployment of e0, e1 and e2, which e2 is about to leave, says after these deaths."""
    said = []
    deployment = SimpleNamespace(
        deaths=deaths,
        members=("e0", "e1", "e2"),
        failed="",
        router=SimpleNamespace(lost=lambda engines: None),
        _fail=said.append,
        _coordinator=SimpleNamespace(
            spares=lambda engine: engine in spares,
            change=SimpleNamespace(removing=("e2",)),
            operation=SimpleNamespace(record=SimpleNamespace(phase=phase, ended=ended)),
        ),
    )
    _fail_for_the_dead(deployment)
    return said


def test_a_leaving_engine_ends_nothing_as_long_as_the_operation_goes_on_without_it():
    assert after(E2, spares=("e2",)) == []
    assert after(E2, phase="preparing") == ["serving engine e2 died: killed"]


def test_who_was_to_stay_is_named_and_before_the_one_that_was_leaving():
    assert after(E2 | E1, spares=("e2",)) == ["serving engine e1 died: killed"]
    assert after(E2 | E1) == ["serving engine e1 died: killed; serving engine e2 died: killed"]


def test_when_an_operation_fails_that_went_on_without_an_engine_its_cause_is_still_to_be_noticed():
    assert after(E2, phase="failed", ended=time.time()) == []
    assert after(E2 | E1, phase="failed", ended=time.time()) != []
    assert after(E2, phase="failed", ended=time.time() - 2 * MEANWHILE) == ["serving engine e2 died: killed"]
