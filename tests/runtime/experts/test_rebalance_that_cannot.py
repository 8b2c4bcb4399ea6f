"""Rebalances that break off or must not begin: no slot changes, all members say why, and the next one does it."""

import os
import re

import numpy as np
import pytest
import torch
from small_engine import EXPERTS, LAYERS, SLOTS, Engine, Memory, start

from elasticfsm.errors import ElasticError, PlacementError, TransferError
from elasticfsm.runtime.experts.placement import Placement
from elasticfsm.runtime.experts.placing import Loads, Placements
from elasticfsm.runtime.experts.rebalance import Experts
from elasticfsm.runtime.experts.state import ExpertState, Part, Staged
from elasticfsm.runtime.weights.by_p2p import P2pTransfer
from elasticfsm.runtime.weights.choice import Transfers


def corrupted(link, store, me, kind):
    """All rows of the senders change between their checksum and their read."""
    engine = Engine(store, me, kind, seconds=10.0)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    barrier = engine.groups.active.world.barrier
    engine.loads.reduce("active")
    engine.placements.plan("active")
    engine.experts.fence("active")
    first, change = engine.state.pending[0], 0.0 if me == "e2" else 1.0
    engine.memory.down[first].add_(change)
    before = engine.memory.down[first].clone(), engine.memory.up[first].clone()
    barrier()
    outcome = {"error": ""}
    try:
        engine.experts.read()
    except TransferError as error:
        outcome["error"] = str(error)
    barrier()
    outcome["kept"] = torch.equal(before[0], engine.memory.down[first]) and torch.equal(
        before[1], engine.memory.up[first]
    )
    outcome["staged"] = engine.state.staged is not None
    engine.close()
    return outcome


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_a_row_with_a_wrong_checksum_is_refused_and_no_slot_changes(processes, store, kind):
    children = start(processes, store, corrupted, kind)
    outcomes = [child.result() for child in children]
    assert "arrived with checksum" in outcomes[2]["error"]
    assert not outcomes[2]["staged"]
    assert all(outcome["kept"] for outcome in outcomes)


def refuse_then_succeed(link, store, me, kind):
    """The new engine gives up its first read; the next rebalance goes on under new agent names."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    engine.loads.reduce("active")
    engine.placements.plan("active")
    engine.experts.fence("active")
    if me == "e2":
        engine.state.checksums = [sum_ + 1 for sum_ in engine.state.checksums]
    try:
        engine.experts.read()
        failed = False
    except TransferError:
        failed = True
    engine.groups.active.world.barrier()  # as the vote on the layer does, which the one that failed never gives
    before = getattr(engine.state.transfer, "agent_name", "")
    engine.experts.stop()
    engine.experts.start()
    layers = engine.rebalance()
    after = getattr(engine.state.transfer, "agent_name", "-")
    report = engine.report() | {"failed": failed, "renewed": before != after, "layers": layers}
    engine.close()
    return report


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_a_rebalance_that_broke_off_is_done_by_the_next_one(processes, store, kind):
    results = [child.result() for child in start(processes, store, refuse_then_succeed, kind)]
    assert [result["failed"] for result in results] == [False, False, True]
    assert all(result["wrong"] == [] and result["renewed"] for result in results)
    assert {result["layers"] for result in results} == {LAYERS}


def cut_short(link, store, me, kind, tls):
    """A source stands still while its rows are read; then all go on."""
    os.environ |= {"UCX_TLS": tls} if tls else {}
    engine = Engine(store, me, kind, seconds=3.0)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    engine.loads.reduce("active")
    engine.placements.plan("active")
    engine.experts.fence("active")
    link.say("fenced")
    link.hear(60)
    try:
        engine.experts.read()
        error = ""
    except TransferError as failure:
        error = str(failure)
    link.say("read")
    link.hear(60)
    rows, said = engine.state.placement.hash(), []
    engine.state.transfers.say = said.append
    answer = engine.experts.confirm("active")
    report = {"error": error, "answer": answer, "kept": rows == engine.state.placement.hash()}
    report["wrong then"] = engine.memory.wrong(engine.groups.active.rank)
    report |= {"said": said, "layers": engine.rebalance()}
    report |= engine.report() | {"left": len(engine.state.transfer._quarantine)}
    engine.close()
    return report


@pytest.mark.parametrize(("kind", "tls"), [("nixl", "tcp"), ("nixl", "posix,sysv,self,tcp"), ("p2p", "")])
def test_a_source_that_stands_still_makes_all_give_up_the_layer_and_no_stale_byte_is_live(processes, store, kind, tls):
    children = start(processes, store, cut_short, kind, tls=tls)
    for child in children:
        assert child.hear() == "fenced"
    children[0].stop()
    for child in children[1:]:
        child.say("read")
    assert [child.hear(60) for child in children[1:]] == ["read", "read"]
    children[0].resume()
    children[0].say("read")
    assert children[0].hear(60) == "read"
    for child in children:
        child.say("confirm")
    results = [child.result(60) for child in children]
    assert "engine e0" in results[2]["error"] if kind == "nixl" else "could not exchange" in results[2]["error"]
    assert {result["layers"] for result in results} == {LAYERS}
    assert {result["answer"] for result in results} == {"not_all"}
    (said,) = results[2]["said"]
    assert re.fullmatch(r"experts of layer \d stay where they are: TransferError: (.*)", said)[1] == results[2]["error"]
    assert all(result["kept"] and result["wrong then"] == [] and result["wrong"] == [] for result in results)
    assert len({result["hash"] for result in results}) == 1
    assert [result["left"] for result in results] == [0, 0, 0]  # settled: all renewed their agents before the next plan


def disagree(link, store, me, kind, what):
    """One rank stands elsewhere than the other."""
    engine = Engine(store, me, kind, seconds=5.0)
    engine.begin(["e0", "e1"])
    if me == "e1" and what in ("placement", "share"):
        row = np.roll(engine.state.placement.row(0), 1)
        engine.state.placement = engine.state.placement.with_row(0, row)
    if what == "impossible":
        engine.state.aim("evacuate", ["e1"])
    if what == "early":
        engine.state.aim("evacuate", ["e0"])
    try:
        if what == "share":
            engine.meet(["e0", "e1"])
        if what == "early":
            engine.experts.leave()
        engine.loads.reduce("active")
        engine.placements.plan("active")
    except ElasticError as error:
        return [type(error).__name__, str(error)]
    finally:
        engine.close()
    return ["none", ""]


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("placement", "IdentityMismatch", "placement differs between ranks"),
        ("share", "PlacementError", "hold different placements"),
        ("early", "PlacementError", r"ranks [0] are to leave but still hold experts"),
        ("impossible", "PlacementError", "cannot hold 8 experts"),
    ],
)
def test_ranks_that_disagree_or_cannot_are_told_so_before_a_row_moves(processes, store, what, error, text):
    children = start(processes, store, disagree, "p2p", size=2, what=what)
    results = [child.result() for child in children]
    assert [result[0] for result in results] == [error, error]
    assert text in results[0][1]


def test_steps_out_of_order_are_refused():
    state = ExpertState("e0", Memory(), Transfers.only(P2pTransfer("e0")), lambda name: None, LAYERS, EXPERTS, SLOTS)
    with pytest.raises(PlacementError, match="no layer was read"):
        Experts(state).apply()
    with pytest.raises(PlacementError, match="no placement was shared"):
        Placements(state, Loads(state)).adopt()
    with pytest.raises(PlacementError, match="has no active generation"):
        Experts(state).fence("active")
    with pytest.raises(PlacementError, match="another model"):
        state.install(Placement.initial(LAYERS, EXPERTS + 1, 2, SLOTS))


def test_a_layer_that_would_leave_an_expert_without_a_replica_is_not_put_in_place():
    memory = Memory()
    state = ExpertState("e0", memory, Transfers.only(P2pTransfer("e0")), lambda name: None, LAYERS, EXPERTS, SLOTS)
    placement = Placement.initial(LAYERS, EXPERTS, 2, SLOTS, "op-1")
    memory.fill(placement, 0)
    state.install(placement)
    before, routed = memory.up[0].clone(), dict(memory.routing)
    lost = placement.row(0).copy()
    lost[lost == 0] = 1
    staged = [torch.zeros(8, 5), torch.zeros(6)]
    state.target, state.pending, state.parts = placement, [0], [Part(0, lost, [], False)]
    state.staged = [Staged(0, 1, staged)]
    with pytest.raises(PlacementError, match="without a replica: 0/0"):
        Experts(state).apply()
    assert torch.equal(memory.up[0], before)
    assert all(memory.routing[layer] is row for layer, row in routed.items())
