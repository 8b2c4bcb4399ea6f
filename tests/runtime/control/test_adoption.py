"""What lets engines outlive their coordinator: whom they belong to, what they say again, and who may be ended."""

import os
import subprocess
import sys

import pytest

from elasticfsm.errors import RequestRefused
from elasticfsm.runtime import wire
from elasticfsm.runtime.adopted import Adopted, adopt
from elasticfsm.runtime.deployment.counts import Counts
from elasticfsm.runtime.engine.adoption import Memory, Owner
from elasticfsm.runtime.engine.driven import Switches
from elasticfsm.runtime.experts.placement import Placement
from elasticfsm.runtime.launch import Launcher
from elasticfsm.runtime.roster import Roster


@pytest.fixture
def sleeper():
    """A process that looks like engine e7."""
    command = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()", "--engine-id", "e7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "here\n"  # before, its command line may not be set
        yield process
        process.kill()


def test_only_the_engine_of_that_id_is_adopted(sleeper):
    assert adopt(sleeper.pid, "e8") is None
    assert adopt(os.getpid(), "e7") is None
    found = adopt(sleeper.pid, "e7")
    assert (found.pid, found.poll()) == (sleeper.pid, None)
    found.close()


def test_an_adopted_process_is_ended_through_its_descriptor_and_never_by_a_number_used_again(sleeper):
    found = Adopted(sleeper.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        found.wait(0.01)
    found.kill()
    assert found.wait(10) == found.poll() == 255
    sleeper.wait(10)
    found.kill()  # the number may belong to anybody now
    found.terminate()


def test_a_launcher_ends_what_it_has_adopted(sleeper, tmp_path):
    launcher = Launcher(tmp_path)
    try:
        assert not launcher.adopt("e8", sleeper.pid)
        assert launcher.adopt("e7", sleeper.pid)
        assert launcher.pids() == {"e7": sleeper.pid}
        launcher.stop(["e7"])
        assert sleeper.wait(10) < 0
        assert launcher.pids() == {}
    finally:
        launcher.close()


def test_an_engine_waits_for_another_coordinator_for_as_long_as_it_was_told(sleeper):
    patient, alone = Owner(sleeper.pid, 1000.0), Owner(0, 0.0)
    hasty = Owner(sleeper.pid, 1e-9)
    assert not (patient.lost() or hasty.lost() or alone.lost())
    sleeper.kill()
    sleeper.wait(10)
    hasty.lost()
    assert hasty.lost()
    assert not (patient.lost() or alone.lost())
    hasty.adopted_by(os.getpid())
    assert not hasty.lost()


def test_what_was_said_in_the_last_two_operations_is_said_again_in_order():
    memory = Memory()
    said = [
        wire.Protocol(operation=of, name=name, machine="m", receiver="c")
        for of, name in (
            ("op-1", "built"),
            ("op-1", "aborted"),
            ("op-2", "built"),
            ("op-3", "built"),
            ("op-3", "switched"),
        )
    ]
    for message in said:
        memory.note(message)
    assert memory.said() == said[2:]


def test_an_engine_that_is_expected_but_never_said_hello_is_asked_once_a_second():
    now, sent = [100.0], []
    roster = Roster(lambda engine, message: sent.append((engine, message)), lambda: now[0])
    roster.expect(["e0"], "op-1")
    assert [roster.unknown("e0"), roster.unknown("e0"), roster.unknown("e9")] == [True, False, False]
    now[0] += 1.5
    assert roster.unknown("e0")
    roster.send("e0", wire.Exit())
    assert sent == []
    assert roster.adopt(wire.Here(sender="e0", pid=7, wake="ipc:///w", role="active", members=("e0",)))
    assert [type(message) for _, message in sent] == [wire.Peers, wire.Exit]
    assert not roster.unknown("e0")
    assert roster.get("e0").pid == 7
    assert not roster.adopt(wire.Here(sender="e9", pid=8, wake="", role="active", members=()))


def test_ids_that_others_give_are_not_given_again():
    roster = Roster(lambda engine, message: None)
    roster.expect(["e1"], "op-1")
    assert roster.new_ids(2) == ["e0", "e2"]
    with pytest.raises(RequestRefused, match="e1 is here already"):
        roster.free(["e1"])
    roster.bury("e1", "gone")
    roster.free(["e1"])  # a pod of a StatefulSet comes back under its name


def test_the_pause_of_a_switch_is_from_the_last_old_step_to_the_end_of_the_first_new_one():
    times = iter([1.0, 1.5, 1.75, 2.0])
    switches = Switches(lambda: next(times))
    for generation in (1, 1, 2, 2):
        switches.stepped(generation)
    assert (switches.count, switches.pause_us) == (1, 250_000)


def test_pauses_and_moved_experts_are_counted_once_by_engine_id():
    counts, pauses = Counts(), []
    counts.paused = pauses.append

    def beat(engine, placement=None, **counters):
        counts.take(
            wire.Status(
                sender=engine,
                role="active",
                states={},
                step=1,
                running=0,
                waiting=0,
                counters=counters,
                placement=placement,
            )
        )

    first = Placement.initial(1, 4, 2, 3, "op-1")
    rows = first.physical_to_logical.copy()
    rows[0, 0], rows[0, 1] = rows[0, 1], rows[0, 0]
    second = Placement(rows, 4, 3, "op-1", 1)
    beat("e0", first.to_wire(), switches=0, pause_us=0)
    for _ in range(2):
        beat("e0", second.to_wire(), switches=1, pause_us=2500, rebalances=1, experts_moved=2)
    beat("e1", switches=1, pause_us=4000, experts_moved=1)
    assert pauses == [0.0025, 0.004]
    assert (counts.experts_moved, counts.placement.hash()) == (3, second.hash())
    assert counts.rebalanced > 0
