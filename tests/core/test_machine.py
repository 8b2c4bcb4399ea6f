"""The `transitions` machines and the tables of the spec are the same machines."""

from __future__ import annotations

import pytest

from elasticfsm.compile import program
from elasticfsm.errors import ElasticError
from elasticfsm.machine import ABSENT, FORGET, Sight, Undeclared, agreeing, build, edges, own_thread, select, start
from elasticfsm.mailbox import Letter, Mailbox
from elasticfsm.protocol import shipped

ALL = [(name, machine) for name in shipped() for machine in program(name).machines]


def letter(message: str, engine: str = "k", sender: str = "scale_up.coordinator") -> Letter:
    return Letter(message, sender, engine, "scale_up.existing")


def mailbox(*messages: str) -> Mailbox:
    box = Mailbox()
    for message in messages:
        box.put(letter(message))
    return box


@pytest.mark.parametrize(("protocol", "name"), ALL)
def test_every_edge_of_the_tables_fires_and_nothing_else_does(protocol: str, name: str) -> None:
    spec = program(protocol).machines[name]
    table = {(trigger, source): target for trigger, source, target in edges(spec)}
    triggers = {trigger for trigger, _ in table}
    for source in [ABSENT, *spec.states]:
        for trigger in triggers:
            machine = build(program(protocol), name)
            if source != ABSENT:
                machine.stand(source)
            if (trigger, source) in table:
                assert machine.fire(trigger) == table[trigger, source]
            else:
                with pytest.raises(Undeclared):
                    machine.fire(trigger)
                assert machine.state == source


@pytest.mark.parametrize(("protocol", "name"), ALL)
def test_the_edges_are_those_that_the_spec_lists(protocol: str, name: str) -> None:
    spec = program(protocol).machines[name]
    listed = {(str(way.guard), state.name, way.target) for state in spec.states.values() for way in state.leave}
    listed |= {(f"received {message}", ABSENT, target) for message, target in spec.starts.items()}
    listed |= {(FORGET, state.name, ABSENT) for state in spec.states.values() if state.end}
    assert {(trigger, source, target) for trigger, source, target in edges(spec)} == {
        (guard.replace(" ", "_"), source, target) for guard, source, target in listed
    }


def test_an_undeclared_trigger_names_machine_state_and_what_was_expected() -> None:
    machine = build(program("scale_up"), "scale_up.existing")
    machine.stand("built")
    with pytest.raises(ElasticError, match=r"scale_up.existing stands in `built`.*`agreed_switch`.*received_align"):
        machine.fire("agreed_switch")


def test_an_unknown_machine_is_refused_by_name() -> None:
    with pytest.raises(ElasticError, match=r"no machine `scale_up.observer`"):
        build(program("scale_up"), "scale_up.observer")


def test_guards_are_taken_in_listed_order_and_an_answer_wins_over_done() -> None:
    states = program("scale_up").machines["scale_up.existing"].states
    both = Sight(mailbox("withdraw"), outcome="done")
    assert select(states["building"], both).target == "built"  # type: ignore[union-attr]
    assert select(states["building"], Sight(mailbox("withdraw"))).target == "undoing"  # type: ignore[union-attr]
    assert select(states["confirming"], Sight(mailbox(), "done", "not_all")).target == "undoing"  # type: ignore[union-attr]
    assert select(states["confirming"], Sight(mailbox())) is None


def test_of_two_messages_the_older_one_is_taken() -> None:
    resting = program("rebalance").machines["rebalance.main"].states["resting"]
    assert select(resting, Sight(mailbox("spread", "drain"))).target == "counting"  # type: ignore[union-attr]
    assert select(resting, Sight(mailbox("drain", "spread"))).target == "stopping"  # type: ignore[union-attr]


def test_a_state_without_steps_is_done_at_once() -> None:
    waking = program("serving").machines["serving.engine"].states["waking"]
    assert select(waking, Sight(mailbox())).target == "stepping"  # type: ignore[union-attr]


def test_only_the_full_vote_opens_its_edge() -> None:
    voting = program("scale_up").machines["scale_up.existing"].states["voting"]
    assert agreeing(voting, {"drain"}) is None
    assert agreeing(voting, {"drain", "switch"}).target == "joining"  # type: ignore[union-attr]
    assert select(voting, Sight(mailbox("vote"))) is None


def test_who_was_asked_to_withdraw_before_it_heard_of_the_operation_starts_aborted() -> None:
    existing = program("scale_up").machines["scale_up.existing"]
    assert start(existing, mailbox("align", "withdraw")) == "withdraw"
    assert start(existing, mailbox("align")) == ""


def test_only_the_rebalance_worker_moves_in_a_thread_of_its_own() -> None:
    machines = program("scale_up").machines
    assert [name for name, spec in machines.items() if own_thread(spec)] == ["rebalance.worker"]


def test_all_looks_at_everybody_of_the_role_and_never_takes() -> None:
    members = {("scale_up.existing", "a"), ("scale_up.existing", "b")}
    box = Mailbox(lambda message, alive: {who for who in members if not alive or who[1] != "b"})
    box.put(letter("built", "a", "scale_up.existing"))
    assert box.any("built") and not box.every("built", alive=False) and box.every("built", alive=True)
    assert box.missing("built") == ["b"]
    box.put(letter("built", "b", "scale_up.existing"))
    box.put(letter("built", "b", "scale_up.existing"))
    assert box.every("built", alive=False) and len(box) == 2


def test_a_wake_of_an_older_wave_is_dropped() -> None:
    box = Mailbox()
    box.put(Letter("wake", "serving.engine", "a", "serving.engine", generation=1, wave=3))
    box.put(Letter("wake", "serving.engine", "b", "serving.engine", generation=2, wave=0))
    assert box.drop("wake", (2, 0)) == 1 and len(box) == 1
