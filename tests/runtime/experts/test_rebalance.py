"""Two to three engines move expert rows over real groups: every row ends where the map says, right to the bit."""

import gc
import os
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from elasticfsm.errors import ElasticError, PlacementError, TransferError
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.experts.placement import EMPTY, Placement
from elasticfsm.runtime.experts.placing import Loads, Placements
from elasticfsm.runtime.experts.policy.bounds import moved
from elasticfsm.runtime.experts.rebalance import Experts
from elasticfsm.runtime.experts.slots import Lanes, in_slots
from elasticfsm.runtime.experts.state import ExpertState
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.store import StoreServer
from elasticfsm.runtime.weights.by_p2p import P2pTransfer
from elasticfsm.runtime.weights.choice import Transfers

LAYERS, EXPERTS, SLOTS = 3, 8, 6
ROW = 4 * (8 * 5 + 6)  # bytes of an expert


@pytest.fixture
def store():
    server = StoreServer()
    yield server
    server.close()


def content(layer, expert):
    """What the weights of an expert look like: two tensors that name it."""
    number = 100.0 * layer + expert
    return [torch.arange(40, dtype=torch.float32).view(8, 5) + number, torch.full((6,), number, dtype=torch.float32)]


class Memory:
    """Stacked slots as an engine has them, and the routing that it was told."""

    def __init__(self):
        self.up = [torch.full((SLOTS, 8, 5), -1.0) for _ in range(LAYERS)]
        self.down = [torch.full((SLOTS, 6), -1.0) for _ in range(LAYERS)]
        self.routing = {}
        self.turn = 0

    def slot_tensors(self, layer, slot):
        return [self.up[layer][slot], self.down[layer][slot]]

    def set_routing(self, layer, row):
        self.routing[layer] = row.copy()

    def recent_loads(self):
        return torch.arange(1, LAYERS * EXPERTS + 1).view(LAYERS, EXPERTS).roll(self.turn, 1) ** 2

    def fill(self, placement, rank):
        for layer in range(LAYERS):
            for slot in range(SLOTS):
                expert = placement.row(layer)[rank * SLOTS + slot]
                for tensor, wanted in zip(self.slot_tensors(layer, slot), content(layer, int(expert)), strict=True):
                    tensor.copy_(wanted)

    def wrong(self, rank):
        """(layer, slot) of every slot that is routed to but holds something else."""
        found = []
        for layer, row in self.routing.items():
            for slot in range(SLOTS):
                expert = int(row[rank * SLOTS + slot])
                held = self.slot_tensors(layer, slot)
                if expert != EMPTY and not all(map(torch.equal, held, content(layer, expert))):
                    found.append([layer, slot])
        return found


class Rows:
    """What moves rows on a device, played by a group of the host: posted in slots by the main loop."""

    alive, gbs = True, 1.0

    def __init__(self, group):
        self.group, self.posted = group, []

    def timed_rows(self, incoming, outgoing):
        self.posted = [self.group.post_recv(*each) for each in incoming]
        self.posted += [self.group.post_send(*each) for each in outgoing]
        return self, lambda: None

    def cut(self, reason):
        self.alive = False

    def wait(self, within, cancelled=None):
        for each in self.posted:
            each.wait(within)


class Engine:
    """The steps of one engine in one thread, in the order in which the protocol runs them."""

    def __init__(self, store, me, kind, seconds=20.0):
        self.me, self.groups, self.memory = me, Groups(store), Memory()
        self.state = ExpertState(
            me,
            self.memory,
            Transfers.only(transfer_of(kind, me)),
            lambda name: getattr(self.groups, name),
            LAYERS,
            EXPERTS,
            SLOTS,
        )
        self.state.seconds = seconds
        self.state.renew_group = self.renew
        self.state.offer()
        self.loads = Loads(self.state)
        self.placements = Placements(self.state, self.loads)
        self.experts = Experts(self.state)
        self.generation = self.attempts = 0
        self.slots = kind == "slots"
        if self.slots:
            adapters = {"placement": self.placements, "experts": self.experts}
            in_slots(adapters, Lanes(self.state, "p2p", lambda text: None))
            self.placements, self.experts = adapters["placement"], adapters["experts"]

    def meet(self, members):
        """Create the next generation, share the map with it and switch."""
        self.generation += 1
        if self.me not in members:
            return
        self.groups.plan(f"op-{self.generation}", self.generation, members, self.me)
        self.groups.create("standby")
        self.placements.share("standby") if self.generation > 1 else None
        self.groups.switch()
        self.groups.destroy("retired")
        self.groups.active.rows = Rows(self.groups.active.world) if self.slots else None
        if self.generation > 1:
            self.placements.adopt()

    def begin(self, members):
        """First generation: the initial placement, its rows in their slots."""
        self.meet(members)
        if self.me in members:
            placement = Placement.initial(LAYERS, EXPERTS, len(members), SLOTS, "op-1")
            self.memory.fill(placement, members.index(self.me))
            self.state.install(placement)

    def renew(self, name, kind, within):
        self.attempts += 1
        if kind == "rows":  # of a device, which there is none of here
            self.groups.active.rows = Rows(self.groups.active.world)
        else:
            self.groups.renew(name, kind, self.attempts, within)

    def rebalance(self, after=lambda: None):
        """One whole rebalance; returns how many layers moved. `after` is called whenever something was put in place."""
        before = self.state.tally.layers
        self.loads.reduce("active")
        if self.placements.plan("active") == "nothing":
            return 0
        while True:
            self.experts.fence("active")
            self.experts.read("engine")
            if self.experts.confirm("active") == "not_all":
                return -1
            self.experts.apply()
            after()
            if self.experts.settle("active") == "last":
                return self.state.tally.layers - before

    def report(self):
        rank = self.groups.active.rank
        transfer = self.state.transfer
        return {
            "wrong": self.memory.wrong(rank),
            "hash": self.state.placement.hash(),
            "rows": self.state.placement.physical_to_logical.tolist(),
            "moved": transfer.moved[transfer.kind],
            "registrations": getattr(transfer, "registrations", 0),
        }

    def close(self):
        self.state.transfer.close()
        self.groups.close_all()


def transfer_of(kind, me):
    os.environ["UCX_LOG_LEVEL"] = "fatal"
    from elasticfsm.runtime.weights.by_nixl import NixlTransfer

    return NixlTransfer(me) if kind == "nixl" else P2pTransfer(me)


def grow_and_shrink(link, store, me, kind):
    """2 -> 3, experts follow; rank 0 is evacuated and leaves."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    reports = []
    layers = engine.rebalance()
    reports.append(engine.report() | {"layers": layers})
    engine.state.aim("evacuate", ["e0"])
    engine.experts.stop()
    engine.experts.start()
    layers = engine.rebalance()
    engine.experts.leave()
    reports.append(engine.report() | {"layers": layers})
    engine.meet(["e1", "e2"])
    if me != "e0":
        engine.state.aim("spread")
        engine.rebalance()
        reports.append(engine.report())
    engine.close()
    return reports


def start(processes, store, function, kind, size=3, **arguments):
    return [processes.start(function, store=store.address, me=f"e{i}", kind=kind, **arguments) for i in range(size)]


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_rows_follow_the_map_when_growing_and_when_rank_0_leaves(processes, store, kind):
    children = start(processes, store, grow_and_shrink, kind)
    results = [child.result() for child in reversed(children)][::-1]
    grown, evacuated = ([result[step] for result in results] for step in (0, 1))
    final = [result[2] for result in results[1:]]
    for step in (grown, evacuated, final):
        assert [report["wrong"] for report in step] == [[]] * len(step)
        assert len({report["hash"] for report in step}) == 1
        assert {report["registrations"] for report in step} == ({LAYERS} if kind == "nixl" else {0})  # its slots
    assert grown[0]["layers"] == LAYERS
    assert grown[2]["moved"] >= LAYERS * SLOTS * ROW  # the new engine got all it holds from peers
    assert EMPTY not in np.array(grown[0]["rows"])
    assert (np.array(evacuated[0]["rows"])[:, :SLOTS] == EMPTY).all()
    assert np.array(final[0]["rows"]).shape == (LAYERS, 2 * SLOTS)


def within_a_budget(link, store, me, kind, rows):
    """Rows move in parts of at most so many on all ranks together; every state between is covered, and right."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    engine.meet(["e0", "e1", "e2"])
    engine.state.budget = rows * ROW
    rank, maps, wrong = engine.groups.active.rank, [engine.state.placement], []

    def look():
        maps.append(engine.state.placement.check())
        wrong.extend(engine.memory.wrong(rank))

    layers = engine.rebalance(look)
    steps = [
        int(moved(*(each.physical_to_logical.reshape(LAYERS, 3, SLOTS) for each in pair), EXPERTS).sum())
        for pair in pairwise(maps)
    ]
    report = engine.report() | {"layers": layers, "steps": steps, "between": wrong}
    engine.close()
    return report


@pytest.mark.parametrize("kind", ["nixl", "p2p", "slots"])
def test_a_budget_cuts_layers_into_parts_that_arrive_beside_different_steps(processes, store, kind):
    another = StoreServer()
    both = [(store, 2), (another, 0)]
    started = [start(processes, each, within_a_budget, kind, rows=rows) for each, rows in both]
    cut, whole = ([child.result() for child in children] for children in started)
    another.close()
    assert [report["between"] + report["wrong"] for report in (*cut, *whole)] == [[]] * 6
    assert cut[0]["rows"] == cut[1]["rows"] == whole[0]["rows"]
    assert len(whole[0]["steps"]) == whole[0]["layers"] == cut[0]["layers"]
    assert max(whole[0]["steps"]) > 1 and sum(cut[0]["steps"]) == sum(whole[0]["steps"])
    assert len(cut[0]["steps"]) >= sum(whole[0]["steps"]) / 2 > 2 * LAYERS and max(cut[0]["steps"]) <= 2
    assert {report["registrations"] for report in cut} == ({LAYERS} if kind == "nixl" else {0})


def again_and_again(link, store, me, kind, broken):
    """Rebalances whose loads turn every time; with `broken` one rank lost rows, or the group, in each."""
    engine = Engine(store, me, kind)
    engine.begin(["e0", "e1"])
    layers = 0
    for number in range(18):
        if number == 6:
            first = settled(engine)
        engine.memory.turn = number
        engine.state.failed = broken == "rows" and me == "e1"
        if broken == "eplb":
            engine.groups.active.eplb.cut("injected") if me == "e1" else None
            engine.state.torn = True  # as a step says to all
        if broken == "device" and me == "e1":
            engine.groups.active.rows.cut("injected")
        layers += engine.rebalance()
    report = engine.report() | {"first": first, "last": settled(engine), "layers": layers, "made": engine.attempts}
    engine.close()
    return report


def settled(engine):
    """[descriptors, threads, registrations], when what was given up has had time to go."""
    engine.groups.reaper.wait_empty(Deadline(10, "the reaper"))
    gc.collect()
    counts = [sum(1 for _ in Path(f"/proc/self/{name}").iterdir()) for name in ("fd", "task")]
    return [*counts, getattr(engine.state.transfer, "registrations", 0)]


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("nixl", ""), ("p2p", ""), ("nixl", "rows"), ("p2p", "rows"), ("p2p", "eplb"), ("slots", "device")],
)
def test_rebalances_in_a_row_leave_nothing_behind_also_when_each_one_renews(processes, store, kind, broken):
    results = [child.result(60) for child in start(processes, store, again_and_again, kind, 2, broken=broken)]
    for result in results:
        assert result["wrong"] == [] and result["layers"] >= 18
        assert result["made"] == {"": 0, "device": 18}.get(broken, result["made"])
        assert all(now <= then for now, then in zip(result["last"], result["first"], strict=True)), (
            result["first"],
            result["last"],
        )


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
