"""The part that lives in somebody else's engine: needs nothing, follows the table, refuses in time."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from elasticfsm.compile import program
from elasticfsm.embed import Machine, Monitor, Op, Program, Recorder, Refused, TableError
from elasticfsm.journal import read
from elasticfsm.lint import lint
from elasticfsm.meetings import collectives
from elasticfsm.protocol import load
from elasticfsm.steps import SPEC
from elasticfsm.table import digest, encode, table
from elasticfsm.trace import validate

VARIANT = "variants/vllm-0.33"
TABLES = ("busy_loop", "scale_up", "scale_down")
OP = Op("127.0.0.1:4711", 2, 3)
HEARD = {
    *("received reconfigure", "received pause", "received commit", "received resume"),
    *("agreed pause", "answer work", "answer empty"),
}
SYNC = ("all_reduce", "dp.active", "sum")
COMMIT = [("groups", "retired", "destroy"), ("all_reduce", "dp.active", "max"), ("rpc", "", "commit_scale_up")]


def monitor(**kwargs: Any) -> Monitor:
    return Monitor(Program.load("vllm-0.33/scale_up"), "existing", "core", 0, OP, hears=HEARD, **kwargs)


def do(watch: Monitor, *event: str) -> None:
    watch.before(*event)
    watch.after(*event)
    if event == SYNC:
        watch.told("answer work")


def prepare(watch: Monitor) -> None:
    assert watch.told("received reconfigure")
    for event in (("groups", "standby", "create"), ("rpc", "", "prepare_reconfiguration"), ("rpc", "", "clear_async")):
        do(watch, *event)
    assert watch.enter("sync_kv_cache_memory_size")
    do(watch, "all_reduce", "dp.standby", "min")
    assert watch.enter("commit_scale_up")


def close_gate(watch: Monitor) -> None:
    assert watch.told("received pause")
    watch.before(*SYNC)
    watch.after(*SYNC)
    assert watch.told("agreed pause")
    watch.told("answer empty")


def ready_to_commit(**kwargs: Any) -> Monitor:
    watch = monitor(**kwargs)
    prepare(watch)
    close_gate(watch)
    assert watch.told("received commit")
    return watch


def test_it_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import elasticfsm.embed as e; "
        "e.Program.load('vllm-0.33/scale_up'); import elasticfsm.integrations.vllm as v; v.register(); "
        "print([m for m in set(sys.modules) - before "
        "if m.split('.')[0] not in sys.stdlib_module_names | {'elasticfsm'}])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("name", TABLES)
def test_the_committed_table_is_the_compiled_one(name: str) -> None:
    path = SPEC / VARIANT / f"{name}.json"
    fresh = encode(program(f"{VARIANT}/{name}"))
    assert path.read_text() == fresh, f"stale: elasticfsm compile {VARIANT}/{name} --out {path}"
    assert json.loads(fresh) == table(program(f"{VARIANT}/{name}"))


@pytest.mark.parametrize("name", TABLES)
def test_the_variant_is_a_protocol_without_errors(name: str) -> None:
    assert [str(found) for found in lint(load(f"{VARIANT}/{name}")) if found.severity == "error"] == []


def test_the_digest_tells_two_protocols_apart() -> None:
    body = table(program(f"{VARIANT}/scale_up"))
    assert Program.load("vllm-0.33/scale_up").digest == body["digest"] == digest(body)
    body["machines"]["scale_up.existing"]["states"]["committing"]["steps"].reverse()
    assert digest(body) != body["digest"]


def test_a_correct_operation_is_not_refused() -> None:
    watch = ready_to_commit(mode="guard")
    for event in COMMIT:
        do(watch, *event)
    assert watch.enter("complete") and watch.told("received resume")
    do(watch, "all_reduce", "dp.active", "max")
    watch.told("answer work")
    do(watch, *SYNC)
    assert watch.ended and watch.refusals == []


def test_an_inverted_commit_is_refused_and_says_what_was_expected() -> None:
    told: list[Refused] = []
    watch = ready_to_commit(mode="guard", on_refused=told.append)
    with pytest.raises(Refused, match=r"groups.destroy on retired; found rpc.commit_scale_up") as caught:
        watch.before("rpc", "", "commit_scale_up")
    assert told == [caught.value] and caught.value.state == "committing"
    assert watch.waiting() is None, "what was refused was not issued"


def test_no_forward_step_begins_while_the_engine_commits() -> None:
    watch = ready_to_commit(mode="guard")
    with pytest.raises(Refused, match=r"all_reduce.sum on dp.active"):
        watch.before(*SYNC)


def test_a_commit_before_all_have_paused_opens_nothing() -> None:
    watch = monitor(mode="guard")
    prepare(watch)
    assert watch.told("received pause")
    assert not watch.told("received commit"), "the gate is not closed yet"
    with pytest.raises(Refused):
        watch.before(*COMMIT[0])


def test_forward_steps_go_on_during_preparation() -> None:
    watch = monitor(mode="guard")
    watch.told("received reconfigure")
    watch.before("groups", "standby", "create")
    do(watch, *SYNC)
    do(watch, *SYNC)
    watch.after("groups", "standby", "create")
    do(watch, "rpc", "", "prepare_reconfiguration")


def test_observing_says_a_deviation_once_and_never_raises() -> None:
    lines: list[Any] = []
    watch = ready_to_commit(sink=lines.extend)
    for event in reversed(COMMIT):
        do(watch, *event)
    assert len(watch.refusals) == 1
    assert [line[0] for line in lines].count("refused") == 1
    assert watch.enter("complete"), "where the host says it is, it is followed again"
    assert watch.told("received resume")


def test_a_state_without_a_way_to_it_is_on_record() -> None:
    watch = monitor()
    watch.told("received reconfigure")
    assert not watch.enter("complete")
    assert "state complete" in watch.refusals[0].got


def test_waiting_names_the_oldest_that_was_not_left() -> None:
    now = [0.0]
    watch = monitor(clock=lambda: now[0])
    watch.told("received reconfigure")
    watch.before("groups", "standby", "create")
    now[0] = 5.0
    watch.before(*SYNC)
    assert watch.waiting() == ("groups.create on standby", 0.0)
    watch.after("groups", "standby", "create")
    assert watch.waiting() == ("all_reduce.sum on dp.active", 5.0)


def test_what_other_machines_know_is_taken_over_by_the_next_operation() -> None:
    watch = monitor()
    prepare(watch)
    close_gate(watch)
    following = Monitor(Program.load("vllm-0.33/scale_down"), "remaining", "core", 0, OP, hears=HEARD, previous=watch)
    assert following.states["busy_loop.gate"] == "paused" and following.state == "absent"


class Hands:
    """A host that performs every step; those in `later` only when told to."""

    def __init__(self, *later: str) -> None:
        self.done: list[str] = []
        self.later = {step: Future[str]() for step in later}

    def start(self, step: str, op: Op) -> Future[str]:
        self.done.append(step)
        if step in self.later:
            return self.later[step]
        future: Future[str] = Future()
        future.set_result("")
        return future


def drive(hands: Hands, watch: Monitor | None = None) -> Machine:
    return Machine(Program.load("vllm-0.33/scale_up"), "existing", hands, OP, clock=lambda: 0.0, monitor=watch)


def test_a_machine_in_a_background_list_never_waits() -> None:
    hands = Hands("rpc.prepare_reconfiguration")
    machine = drive(hands)
    assert not machine.progress() and not machine.progress()
    assert (machine.state, hands.done) == ("prepare", ["groups.create: standby", "rpc.prepare_reconfiguration"])
    hands.later["rpc.prepare_reconfiguration"].set_result("")
    assert machine.progress() and machine.state == "sync_kv_cache_memory_size"


def test_a_machine_goes_through_its_states_one_by_one_and_ends_committed() -> None:
    machine = drive(Hands(), Monitor(Program.load("vllm-0.33/scale_up"), "existing", "core", 0, OP, mode="guard"))
    seen = []
    for message in ("pause", "held", "commit", "resume"):
        while machine.progress() and not machine.is_complete():
            seen.append(machine.state)
        assert machine.is_ready_for_switch() == (message == "commit")
        machine.decide(message)
    while not machine.is_complete():
        machine.progress()
    assert machine.outcome() == "committed"
    assert seen[:3] == ["sync_kv_cache_memory_size", "commit_scale_up", "pausing"]


def test_a_failed_step_without_a_way_out_is_the_hosts_error() -> None:
    hands = Hands("rpc.prepare_reconfiguration")
    hands.later["rpc.prepare_reconfiguration"].set_exception(OSError("no port"))
    machine = drive(hands)
    with pytest.raises(OSError, match="no port"):
        machine.progress()


def test_between_operations_nothing_is_written_and_then_all_of_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "engine0")
    watch = monitor(sink=recorder.put)
    do(watch, *SYNC)
    assert list(tmp_path.iterdir()) == []
    recorder.begin("op")
    prepare(watch)
    recorder.end()
    recorder.close()
    events = [event["event"] for event in read(tmp_path)["engine0"]]
    assert events[:2] == ["enter", "enter"] and "collective.before" in events
    assert recorder.fault is None


def test_what_did_not_fit_into_memory_is_counted_and_the_rest_stays_valid(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "engine0")
    recorder.names = {"active": "start"}
    recorder.again = (("generation", "", {"of": "start", "members": ["engine0"]}),)
    watch = monitor(sink=recorder.put)
    for _ in range(3000):
        do(watch, *SYNC)
    recorder.begin("op")
    recorder.close()
    first, again, *_ = read(tmp_path)["engine0"]
    assert first["event"] == "dropped" and again["event"] == "generation"
    ((kind, of, number),) = first["collectives"]
    assert (kind, of) == ("dp", "start")
    issued = collectives(read(tmp_path))["dp", "start"]["engine0"]
    assert len(issued) == 3000 and issued.count(first) == number
    assert [str(one) for one in validate(tmp_path, machines=program(f"{VARIANT}/scale_up").machines)] == []


def test_a_full_disk_does_not_reach_the_engine(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "file", "engine0")
    (tmp_path / "file").write_text("")
    recorder.begin("op")
    recorder.note("enter", "m")
    recorder.close()
    assert isinstance(recorder.fault, OSError)


@pytest.mark.parametrize(("text", "says"), [("{", "not a compiled"), ('{"format": 0}', "expected 1"), ("[]", "not")])
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TableError, match=says):
        Program.load(path)


def test_a_missing_table_says_how_to_write_one() -> None:
    with pytest.raises(TableError, match="elasticfsm compile nowhere"):
        Program.load("nowhere")


def test_every_shipped_protocol_compiles_to_a_table(tmp_path: Path) -> None:
    for name in ("serving", "rebalance", "scale_up", "scale_down"):
        path = tmp_path / f"{name}.json"
        path.write_text(encode(program(name)))
        loaded = Program.load(path)
        role = next(iter(loaded.roles))
        assert Monitor(loaded, role, "core", 0, OP).expected() is not None
