"""What is on disk: written as a whole before it is said, read back after a restart, and never by two at a time."""

import os
import subprocess
import sys

import pytest

from elasticfsm.compile import program
from elasticfsm.errors import RequestRefused
from elasticfsm.runtime.changes import change_of, state_after_restart
from elasticfsm.runtime.ledger import Ledger, Standing
from elasticfsm.runtime.operation import Operation, Operations, Record
from elasticfsm.runtime.service.metrics import phases


def record(**fields):
    known = {"operation_id": "op-1", "instance_id": "run-1", "generation": 2, "requested_size": 3, "active_size": 2}
    return Record(**known | {"members": ("e0", "e1"), "engines_to_add": ("e2",)} | fields)


def standing(**fields):
    known = {"instance": "run-1", "generation": 2, "members": ("e0",), "model": "/m", "address": "ipc:///x"}
    return Standing(**known | {"journal": "/j", "next_engine": 3, "options": {"keep": 5.0}} | fields)


def test_a_change_of_phase_is_on_disk_before_anybody_sees_it(tmp_path):
    ledger = Ledger(tmp_path)
    seen = []

    def keep(fresh):
        ledger.write(fresh)
        seen.append((ledger.operation().phase, operation.record.phase))

    operation = Operation(record(), keep)
    for detail, phase in (("recording", "preparing"), ("voting", "committing"), ("done", "completed")):
        operation.moved(detail, phase)
    assert seen == [("preparing", "idle"), ("committing", "preparing"), ("completed", "committing")]
    assert ledger.operation() == operation.record
    assert [past.operation_id for past in ledger.past()] == ["op-1"]


def test_a_disk_that_refuses_is_said_in_the_record_and_stops_no_operation(tmp_path):
    def full(fresh):
        raise OSError(28, "No space left on device")

    operation = Operation(record(), full)
    operation.moved("voting", "committing")
    assert "No space left" in operation.record.error
    with pytest.raises(OSError, match="No space left"):
        operation.keep()


def test_a_write_that_was_cut_off_leaves_the_old_record(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write(record())
    (tmp_path / ".operation.json.new").write_bytes(b'{"operation_id": "op-2", "inst')
    with (tmp_path / "operations.jsonl").open("ab") as file:
        file.write(b'{"operation_id": "op-2", "inst')
    assert ledger.operation() == record()
    assert ledger.past() == []


def test_a_damaged_file_is_refused_with_its_name(tmp_path):
    (tmp_path / "deployment.json").write_text("{}")
    with pytest.raises(RequestRefused, match=r"deployment\.json.*not written by this version"):
        Ledger(tmp_path).standing()


def test_who_serves_is_read_back_and_forgotten_when_all_has_ended(tmp_path):
    ledger = Ledger(tmp_path)
    assert ledger.standing() is None
    ledger.write_standing(standing())
    assert ledger.standing() == standing()
    ledger.forget_standing()
    assert ledger.standing() is None


def test_two_coordinators_never_use_one_directory(tmp_path):
    program = "import sys, pathlib\nfrom elasticfsm.runtime.ledger import Ledger\n"
    program += f"Ledger(pathlib.Path({str(tmp_path)!r})).hold()\nprint('held', flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(RequestRefused, match=f"process {other.pid} coordinates here"):
                Ledger(tmp_path).hold()
        finally:
            other.kill()
    ledger = Ledger(tmp_path)  # a killed process holds nothing
    ledger.hold()
    assert (tmp_path / "coordinator.lock").read_text() == f"{os.getpid()}\n"
    ledger.close()


def test_operations_of_former_coordinators_still_answer_for_their_ids(tmp_path):
    operations = Operations("run-2", past=[record(phase="completed")])
    found, fresh = operations.begin(3, 3, 2, "op-1")
    assert (found.id, found.record.phase, fresh) == ("op-1", "completed", False)


def test_a_request_for_the_size_that_is_there_is_no_change():
    operations = Operations("run-2", past=[record(phase="completed")])
    same, _ = operations.begin(3, 3, 2)
    same.moved("done", "completed")
    assert operations.current is same
    assert operations.last_change.id == "op-1"


@pytest.mark.parametrize(
    ("fields", "safe"),
    [
        ({"phase": "aborted"}, ("e2",)),
        ({"phase": "completed"}, ()),
        ({"phase": "failed"}, ()),
        ({"phase": "completed", "engines_to_add": (), "engines_to_remove": ("e0",)}, ("e0",)),
        ({"phase": "aborted", "engines_to_add": (), "engines_to_remove": ("e0",)}, ()),
    ],
)
def test_only_engines_that_nobody_needs_are_safe_to_delete(fields, safe):
    operation = Operation(record(**fields | {"phase": "committing"}))
    operation.moved("end", fields["phase"])
    assert operation.record.safe_to_delete == safe


@pytest.mark.parametrize("protocol", ["scale_up", "scale_down"])
def test_a_restarted_coordinator_asks_unless_something_was_decided(protocol):
    spec = program(protocol)
    machine = spec.machines[spec.coordinator]
    for name, state in machine.states.items():
        if not state.end:
            phase = machine.states[state_after_restart(spec, name)].phase
            assert phase == (state.phase if state.phase in ("completing", "aborting") else "asking"), name
    assert machine.states[state_after_restart(spec, "")].phase == "asking"


def test_the_change_of_a_record_is_the_one_that_was_begun():
    up = change_of(record())
    assert (up.protocol, up.members, up.new) == ("scale_up", ("e0", "e1", "e2"), ("e2",))
    down = change_of(record(engines_to_add=(), engines_to_remove=("e0",)))
    assert (down.protocol, down.members, down.removing) == ("scale_down", ("e1",), ("e0",))


def test_seconds_of_a_phase_are_counted_until_the_vote_is_asked_for():
    history = [("recording", 10.0), ("building", 11.0), ("deciding", 14.0), ("completing", 14.5), ("done", 15.0)]
    assert phases(history) == {"preparing": 4.0, "committing": 1.0}
