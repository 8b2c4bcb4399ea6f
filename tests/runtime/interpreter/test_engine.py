"""Interpreters of several engines run whole operations of the spec, in threads and without sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec
import pytest

from elasticfsm.compile import program
from elasticfsm.errors import ElasticError, GroupError, RequestRefused
from elasticfsm.machine import EngineMachine
from elasticfsm.mailbox import Letter
from elasticfsm.runtime.interpreter import Interpreter, Operation, OperationEnded
from elasticfsm.testing import Ground, Hands, hands

from .conftest import Company

Make = Callable[..., Company]

UP = Operation("up", 2, ("a", "b", "c"))
ROLES_UP = {"a": "existing", "b": "existing", "c": "new"}


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Looks again and again until it is true."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if true():
            return
        pause.wait(0.01)
    raise TimeoutError("it did not become true")


def settle(company: Company, ends: dict[str, str], seconds: float = 20.0) -> None:
    """Waits until the operation has ended on every engine named."""
    until(lambda: all(company.engines[name].ends[-1:] == [end] for name, end in ends.items()), seconds)


def test_two_engines_grow_to_three_and_shrink_to_one(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    all_of.operate("scale_up", UP, ROLES_UP)
    assert all_of.run() == "done"
    settle(all_of, {"a": "done", "b": "done", "c": "done"})
    assert {engine.board.generation for engine in all_of.engines.values()} == {2}
    down = Operation("down", 3, ("c",))
    all_of.operate("scale_down", down, {"a": "removing", "b": "removing", "c": "remaining"})
    assert all_of.run() == "done"
    settle(all_of, {"a": "done", "b": "done", "c": "done"})
    assert all_of.engines["a"].interpreter.state_of("serving.engine") == "absent"
    assert all_of.engines["c"].interpreter.generations["active"] == "down:3"
    assert all(engine.error is None for engine in all_of.engines.values())


def test_an_operation_begins_when_all_that_the_one_before_said_was_heard(company: Make) -> None:
    all_of = company("a", "b")
    left = all_of.engines["a"].interpreter._seats["rebalance.main"].mail
    left.put(Letter("evacuate", "scale_down.remaining", "a", "rebalance.main"))  # which no resting experts hear
    all_of.operate("scale_down", Operation("down", 2, ("a",)), {"a": "remaining", "b": "removing"})
    all_of.conductor.turn()
    until(lambda: all_of.engines["b"].interpreter.state_of("scale_down.removing") == "entering")
    assert all_of.engines["a"].interpreter.state_of("scale_down.remaining") == "absent"
    left.take("evacuate")
    assert all_of.run() == "done"


def test_it_begins_all_the_same_when_what_was_said_is_never_heard(company: Make) -> None:
    all_of = company("a")
    engine = all_of.engines["a"].interpreter
    engine._beginning._within = 0.2
    engine._seats["serving.engine"].mail.put(Letter("serve", "scale_up.new", "a", "serving.engine"))
    all_of.add("c")
    all_of.operate("scale_up", Operation("up", 2, ("a", "c")), {"a": "existing", "c": "new"})
    assert all_of.run() == "done"


def test_a_step_that_fails_on_a_new_engine_aborts_and_the_old_ones_serve_on(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    all_of.engines["c"].hands.faults = {"weights.read": GroupError("the source is gone")}
    all_of.operate("scale_up", UP, ROLES_UP)
    assert all_of.run() == "aborted"
    settle(all_of, {"a": "aborted", "b": "aborted", "c": "aborted"})
    assert all_of.engines["a"].interpreter.state_of("serving.engine") in ("idle", "stepping")
    assert {engine.board.generation for name, engine in all_of.engines.items() if name != "c"} == {1}


def test_an_error_that_is_no_elastic_error_is_a_failed_step_as_well(company: Make) -> None:
    all_of = company("a")
    all_of.add("c")
    all_of.engines["a"].hands.faults = {"weights.offer": ZeroDivisionError("oops")}
    all_of.operate("scale_up", Operation("up", 2, ("a", "c")), {"a": "existing", "c": "new"})
    assert all_of.run() == "aborted"
    settle(all_of, {"a": "aborted", "c": "aborted"})
    all_of.engines["a"].journal.flush()
    text = all_of.engines["a"].journal.path.read_text()
    assert "ZeroDivisionError: oops" in text and "Traceback" in text


def test_cancel_withdraws_a_list_that_waits_for_others(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    conductor = all_of.operate("scale_up", UP, ROLES_UP)
    all_of.engines["c"].interpreter.close()  # it never enters: the others wait in groups.create
    all_of.run(lambda one: one.state == "building")
    until(lambda: sum("up:2" in m.group and len(m.entered) == 2 for m in all_of.ground.meetings.values()) == 1)
    conductor.cancel()
    all_of.run(lambda one: one.state == "emptying")
    settle(all_of, {"a": "aborted", "b": "aborted"})
    said = ""  # the first one to leave closes its side, so that the other may see that instead
    for name in "ab":
        all_of.engines[name].journal.flush()
        said += all_of.engines[name].journal.path.read_text()
    assert "GroupCut: withdrawn while waiting for groups.create" in said
    conductor.died("c")
    assert all_of.run() == "aborted"


def test_a_deadline_of_a_phase_withdraws_and_aborts(company: Make) -> None:
    all_of = company("a", "b")
    all_of.add("c")
    all_of.operate("scale_up", Operation("up", 2, ("a", "b", "c"), {"prepare": 0.3}), ROLES_UP)
    all_of.engines["c"].interpreter.close()
    all_of.run(lambda one: one.state == "emptying")
    settle(all_of, {"a": "aborted", "b": "aborted"})


def test_an_operation_that_has_ended_is_refused_and_its_late_letters_are_counted(company: Make) -> None:
    all_of = company("a")
    all_of.add("c")
    operation = Operation("up", 2, ("a", "c"))
    all_of.operate("scale_up", operation, {"a": "existing", "c": "new"})
    assert all_of.run() == "done"
    settle(all_of, {"a": "done", "c": "done"})
    engine = all_of.engines["a"].interpreter
    with pytest.raises(OperationEnded, match="operation up has ended on a: done"):
        engine.begin("scale_up", "existing", operation)
    engine.deliver(Letter("withdraw", "scale_up.coordinator", "coordinator", "scale_up.existing", "up", 2))
    engine.deliver(Letter("retire", "scale_up.coordinator", "coordinator", "scale_up.existing", "other", 2))
    until(lambda: engine.mail.dropped["operation"] > 0)
    assert engine.mail.dropped["ended"] == 1 and engine.mail.dropped["operation"] == 1


def test_a_second_operation_is_refused_while_one_runs(company: Make) -> None:
    all_of = company("a")
    engine = all_of.engines["a"].interpreter
    engine.begin("scale_up", "existing", Operation("one", 2))
    engine.begin("scale_up", "existing", Operation("one", 2))
    with pytest.raises(RequestRefused, match="operation one runs on a"):
        engine.begin("scale_up", "existing", Operation("two", 2))
    with pytest.raises(RequestRefused, match=r"no operation `scale_up` with a role `king`.*scale_down.removing"):
        engine.begin("scale_up", "king", Operation("one", 2))


def test_a_missing_adapter_is_an_error_before_anything_runs() -> None:
    ground, lock = Ground(), threading.Condition()
    adapters = hands(Hands("a", ground, lock))
    del adapters["step"]
    with pytest.raises(ElasticError, match=r"engine a: no adapter performs step.agree, step.forward; a step `a.b`"):
        Interpreter("a", program("rebalance"), {}, adapters, lambda letter: None, _Nowhere())


class _Nowhere:
    def put(self, event: str, machine: str = "", /, **fields: object) -> None:
        pass

    def note(self, event: str, machine: str, fields: Mapping[str, object], /) -> None:
        pass

    def flush(self) -> None:
        pass


def test_idle_engines_take_no_step_until_one_has_a_request(company: Make) -> None:
    all_of = company("a", "b")
    a, b = all_of.engines["a"], all_of.engines["b"]
    until(lambda: {e.interpreter.state_of("serving.engine") for e in (a, b)} == {"idle"})
    step = a.board.step
    assert a.board.wave == 1
    a.work = 1
    a.interpreter.nudge()
    until(lambda: b.board.step > step + 2)
    a.work = 0
    until(lambda: {e.interpreter.state_of("serving.engine") for e in (a, b)} == {"idle"})
    assert a.board.wave == b.board.wave == 2


def test_the_rebalance_worker_moves_a_layer_in_its_own_thread_beside_the_steps(company: Make) -> None:
    all_of = company("a", "b")
    for engine in all_of.engines.values():
        engine.due.set()
        engine.interpreter.nudge()
    until(lambda: all("experts.settle: active" in engine.hands.performed for engine in all_of.engines.values()))
    until(lambda: all(engine.interpreter.state_of("rebalance.main") == "resting" for engine in all_of.engines.values()))
    assert all_of.engines["a"].hands.performed.count("experts.read: engine") == 1
    assert {engine.interpreter.state_of("rebalance.worker") for engine in all_of.engines.values()} <= {"done", "absent"}


def test_a_worker_that_fails_tells_its_owner_and_no_layer_is_applied(company: Make) -> None:
    all_of = company("a", "b")
    for engine in all_of.engines.values():
        engine.hands.faults = {"experts.read": ZeroDivisionError("row")}
        engine.due.set()
        engine.interpreter.nudge()
    until(lambda: all("rebalance.worker" in engine.interpreter.errors() for engine in all_of.engines.values()))
    until(lambda: {e.interpreter.state_of("rebalance.main") for e in all_of.engines.values()} <= {"resting", "off"})
    assert "experts.read: engine: row" in all_of.engines["a"].interpreter.errors()["rebalance.worker"]
    assert "experts.apply" not in all_of.engines["a"].hands.performed


def _without_a_way_out(machine: EngineMachine, name: str) -> None:
    """The shipped protocols have a way out of every step that fails; here one state has none."""
    state = machine.spec.states[name]
    bare = msgspec.structs.replace(state, leave=tuple(way for way in state.leave if way.guard.kind != "failed"))
    machine.spec = msgspec.structs.replace(machine.spec, states={**machine.spec.states, name: bare})


def test_a_failure_that_the_spec_has_no_way_out_for_ends_the_main_loop(company: Make) -> None:
    all_of = company("a")
    engine = all_of.engines["a"]
    _without_a_way_out(engine.interpreter._seats["rebalance.main"].machine, "stopping")
    engine.hands.faults = {"experts.stop": ZeroDivisionError("still")}
    engine.interpreter.deliver(Letter("drain", "scale_up.existing", "a", "rebalance.main"))
    engine.thread.join(20)
    assert isinstance(engine.error, ZeroDivisionError) and not engine.interpreter.alive
