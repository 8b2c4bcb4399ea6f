"""The table of faults is read from the spec: nothing of it is forgotten, and each fault is met by one process only."""

import time

from elasticfsm.compile import program
from elasticfsm.protocol import load
from elasticfsm.runtime.faults.cells import OPERATIONS, all_cells, unreached
from elasticfsm.runtime.faults.fault import Fault, Post
from elasticfsm.runtime.faults.result import Result
from elasticfsm.runtime.faults.rules import allowed
from elasticfsm.runtime.faults.table import page, record

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
