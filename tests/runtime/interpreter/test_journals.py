"""What interpreters write is valid against the spec, and explains a run that hangs."""

from __future__ import annotations

from collections.abc import Callable

from elasticfsm.explain import explain, text
from elasticfsm.runtime.interpreter import Operation
from elasticfsm.trace import validate

from .conftest import Company
from .test_engine import ROLES_UP, UP, settle, until

Make = Callable[..., Company]


def test_the_journals_of_a_finished_run_are_valid(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    all_of.operate("scale_up", UP, ROLES_UP)
    all_of.run()
    settle(all_of, dict.fromkeys("abc", "done"))
    all_of.operate("scale_down", Operation("down", 3, ("b",)), {"a": "removing", "b": "remaining", "c": "removing"})
    all_of.run()
    settle(all_of, dict.fromkeys("abc", "done"))
    all_of.close()
    assert [str(finding) for finding in validate(all_of.directory)] == []


def test_the_journals_of_a_cancelled_run_are_valid(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    conductor = all_of.operate("scale_up", UP, ROLES_UP)
    all_of.run(lambda one: one.state == "posting")
    conductor.cancel()
    all_of.run()
    settle(all_of, dict.fromkeys("abc", all_of.conductor.state))  # type: ignore[union-attr]
    all_of.close()
    assert [str(finding) for finding in validate(all_of.directory)] == []


def test_explain_names_the_engine_that_never_entered_a_hung_creation(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    all_of.operate("scale_up", UP, ROLES_UP)
    all_of.engines["c"].interpreter.close()
    all_of.run(lambda one: one.state == "building")
    until(lambda: sum("up:2" in m.group and len(m.entered) == 2 for m in all_of.ground.meetings.values()) == 1)
    for engine in all_of.engines.values():
        engine.journal.flush()
    all_of.journal.flush()
    explanation = explain(all_of.directory)
    waits = {(wait.engine, wait.what, wait.missing) for wait in explanation.waits}
    assert ("a", "step groups.create: standby", ("c",)) in waits
    assert ("b", "step groups.create: standby", ("c",)) in waits
    assert ("coordinator", "all built", ("a", "b")) in waits
    assert explanation.blamed == ("c",)
    said = text(explanation)
    assert "a: scale_up.existing in `building` waits since" in said and "never came: c" in said
    assert b'"blamed"' in explanation.json()
