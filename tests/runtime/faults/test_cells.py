"""The table of faults is read from the spec: nothing of it is forgotten, and each fault is met by one process only."""

import time

import pytest

from elasticfsm.compile import program
from elasticfsm.protocol import load
from elasticfsm.runtime.faults.cells import OPERATIONS, all_cells, unreached
from elasticfsm.runtime.faults.fault import Fault, Post
from elasticfsm.runtime.faults.leads import LEADS
from elasticfsm.runtime.faults.pace import MOST, QUIET, Pace
from elasticfsm.runtime.faults.result import Result
from elasticfsm.runtime.faults.rules import allowed
from elasticfsm.runtime.faults.table import page, record
from elasticfsm.runtime.router import Stream

CELLS = all_cells()


def states_of(machines):
    return {
        f"{name} {state.name}" for name, spec in machines.items() for state in spec.states.values() if not state.end
    }


def test_every_state_of_every_machine_has_a_kill_and_a_stop_or_only_a_second_fault_leads_to_it():
    wanted = set().union(*(states_of(program(name).machines) for name in OPERATIONS))
    for kind in ("kill", "stop"):
        found = {f"{cell.machine} {cell.state}" for cell in CELLS if cell.kind == kind}
        assert wanted - found == set(unreached())


def test_every_message_between_coordinator_and_engines_is_lost_doubled_and_late():
    for name in OPERATIONS:
        found = {(cell.message, cell.kind) for cell in CELLS if cell.message and cell.operation == name}
        others = ("operator", "serving.engine", "rebalance.main")
        wanted = [
            message.name
            for message in load(name).messages.values()
            if not {*message.senders, *message.receivers} & set(others)
            and message.name not in ("died", "lost", "failed")
        ]
        assert {(message, kind) for message in wanted for kind in ("drop", "duplicate", "late")} <= found


def test_no_two_cells_have_the_same_name_and_each_allows_some_outcome():
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert all(allowed(cell) for cell in CELLS)


def test_what_only_an_abort_comes_through_is_met_after_a_cancel():
    for name in OPERATIONS:
        for machine, spec in program(name).machines.items():
            undone = {state.name for state in spec.states.values() if state.phase in ("asking", "aborting")}
            mine = [cell for cell in CELLS if cell.machine == machine and cell.operation == name]
            assert all(cell.cancel or cell.lead for cell in mine if cell.state in undone)
            assert all(cell.cancel for cell in mine if cell.message in ("aborted", "ended", "withdraw", "end"))


def test_a_fault_is_claimed_once(tmp_path):
    suite, one, other = Post(tmp_path), Post(tmp_path), Post(tmp_path)
    assert one.fault() is None
    suite.arm(Fault(kind="kill", machine="scale_up.new", state="building"))
    assert one.fault() == other.fault() != None  # noqa: E711
    assert one.claim("e1", time.monotonic())
    assert not other.claim("e2", time.monotonic())
    assert suite.claimed().engine == "e1"
    assert other.fault() is None


def test_the_table_keeps_every_outcome_and_shows_what_does_not_pass(tmp_path):
    cell = next(cell for cell in CELLS if cell.name == "scale_up/new/prepared/stop")

    def result(outcome, problems=()):
        return Result(
            name=cell.name,
            operation=cell.operation,
            role=cell.role,
            machine=cell.machine,
            where=cell.state,
            kind=cell.kind,
            outcome=outcome,
            allowed=allowed(cell),
            problems=list(problems),
        )

    record([result("completed"), result("aborted")], tmp_path)
    assert "| prepared | completed, aborted |" in (tmp_path / "faults.md").read_text()
    record([result("hang", ["it never ended"])], tmp_path)
    text = (tmp_path / "faults.md").read_text()
    assert "| prepared | hang **(!)** |" in text
    assert "`scale_up/new/prepared/stop`: it never ended" in text
    assert "have not been run yet" in page({}, len(CELLS))


def stream(*times):
    made = Stream("r", (1,), len(times))
    made.times = list(times)
    return made


def test_limits_of_time_grow_with_the_steps_of_the_run_and_shrink_below_nothing():
    pace = Pace()
    assert pace.factor == 1.0
    assert Pace(2.5).factor == 2.5
    pace.saw([stream(0.0, 0.001, 0.002)])
    assert pace.factor == 1.0
    pace.saw([stream(*(2 * QUIET * n for n in range(20)))])
    assert pace.factor == pytest.approx(2.0)
    pace.saw([stream(*range(100))])
    assert pace.factor == MOST


def test_of_two_faults_the_second_waits_until_the_first_was_claimed(tmp_path):
    suite, engine = Post(tmp_path), Post(tmp_path)
    cell = next(cell for cell in CELLS if cell.name == "scale_down/remaining/rejoining/stop")
    suite.arm(cell.fault(("e0", "e1", "e2"), 1.0))
    assert engine.fault().machine == "scale_down.removing" and engine.fault().engines == ("e2",)
    assert engine.claim("e2", 1.0)
    assert suite.claimed() is None and suite.led().engine == "e2"
    assert engine.fault().state == "rejoining" and engine.fault().engines == ("e1",)
    assert engine.claim("e1", 2.0)
    assert suite.claimed().engine == "e1" and engine.fault() is None


def test_every_state_that_one_fault_alone_does_not_lead_to_has_a_lead():
    assert unreached() == []
    assert {(cell.machine, cell.state) for cell in CELLS if cell.lead} <= set(LEADS)
