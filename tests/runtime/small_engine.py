"""An engine that has nothing but a few expert rows, and takes the steps of a rebalance over real groups."""

import os

import torch

from elasticfsm.runtime.experts.placement import EMPTY, Placement
from elasticfsm.runtime.experts.placing import Loads, Placements
from elasticfsm.runtime.experts.rebalance import Experts
from elasticfsm.runtime.experts.slots import Lanes, in_slots
from elasticfsm.runtime.experts.state import ExpertState
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.weights.by_p2p import P2pTransfer
from elasticfsm.runtime.weights.choice import Transfers

LAYERS, EXPERTS, SLOTS = 3, 8, 6
ROW = 4 * (8 * 5 + 6)  # bytes of an expert


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


def start(processes, store, function, kind, size=3, **arguments):
    return [processes.start(function, store=store.address, me=f"e{i}", kind=kind, **arguments) for i in range(size)]
