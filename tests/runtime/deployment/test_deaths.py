"""Which dead engine ends a deployment, and which one is named for it."""

import time
from types import SimpleNamespace

from elasticfsm.runtime import wire
from elasticfsm.runtime.deployment.deaths import HELLO, LEAST, MEANWHILE, _fail_for_the_dead, watch
from elasticfsm.runtime.fingerprint import CODE
from elasticfsm.runtime.roster import Roster

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


class Watched(SimpleNamespace):
    """A deployment of one engine that said what it is at second 0 and is looked at later."""

    def __init__(self, role):
        now = [0.0]
        roster = Roster(lambda engine, message: None, lambda: now[0])
        super().__init__(now=now, roster=roster, deaths={}, members=(), failed="", address="ipc:///nowhere/hub.sock")
        self._coordinator, self.router = None, SimpleNamespace(lost=lambda engines: None)
        self.options = SimpleNamespace(timescale=0.1)
        self._journal = SimpleNamespace(put=lambda *what, **more: None)
        self._launcher = SimpleNamespace(exited=dict, pid=lambda engine: 1, kill=lambda engine: None)
        roster.expect(["e0"], "up")
        hello = wire.Hello(sender="e0", operation="up", pid=1, wake="", code=CODE)
        assert roster.hello(hello, wire.Welcome(instance="i", settings=None)) is None
        said = wire.Status(sender="e0", instance="i", role=role, states={}, step=0, running=0, waiting=0)
        roster.heard("e0", said)

    def dead(self, after):
        self.now[0] = after
        watch(self)
        return "e0" in self.deaths


def test_an_engine_that_still_loads_may_be_silent_for_longer():
    assert not Watched("active").dead(LEAST - 0.1)
    assert Watched("active").dead(LEAST + 0.1)
    assert not Watched("starting").dead(LEAST + 0.1)
    assert Watched("starting").dead(HELLO * 0.1 + 0.1)
