"""New engines read all non-expert weights from existing ones, by NIXL and by p2p, over real groups and store."""

import os

import pytest
import torch

from elasticfsm.errors import TransferError
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.store import StoreClient, StoreServer
from elasticfsm.runtime.weights.board import StoreBoard
from elasticfsm.runtime.weights.by_p2p import P2pTransfer
from elasticfsm.runtime.weights.choice import Transfers
from elasticfsm.runtime.weights.sharing import Meeting, WeightSharing
from elasticfsm.runtime.weights.transfer import checksum

EXISTING, NEW = ["e0", "e1"], ["e2", "e3"]
SHAPES = {"embedding": (300, 64), "layer.0.attention": (64, 64), "norm": (7,)}


@pytest.fixture
def store():
    server = StoreServer()
    yield server
    server.close()


def model(me, fault):
    """The weights of an existing engine, zeros on a new one."""
    generator = torch.Generator().manual_seed(5)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    if me in NEW:
        weights = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    if (fault, me) == ("other shape", "e2"):
        weights["norm"] = torch.zeros(8)
    if (fault, me) == ("other weights", "e1"):
        weights["norm"][3] += 1
    return weights


def transfer_of(kind, me):
    os.environ["UCX_LOG_LEVEL"] = "fatal"
    from elasticfsm.runtime.weights.by_nixl import NixlTransfer

    return NixlTransfer(me) if kind == "nixl" else P2pTransfer(me)


def engine(link, store, me, kind, seconds=20.0, fault=None):
    """Run the steps of one engine in the order of its role; return what it holds and what it moved."""
    transfer = transfer_of("p2p" if (fault, me) == ("other kind", "e2") else kind, me)
    weights = model(me, fault)
    sharing = WeightSharing(Transfers.only(transfer), weights)
    board = StoreBoard(StoreClient(store), "grow-1")
    groups = Groups(store)
    groups.plan("grow-1", 2, EXISTING + NEW, me)

    def standby():
        return groups.standby.world, groups.standby.members

    sharing.begin(Meeting(EXISTING, NEW, board, seconds, None, standby))
    try:
        if me in EXISTING:
            sharing.offer()
            if (fault, me) == ("changed", "e1"):
                weights["embedding"].add_(1)
        groups.create("standby")
        link.say("created")
        if (fault, me) == ("silent", "e2"):
            link.hear(60)
        sharing.withdraw("new") if me in EXISTING else sharing.read("existing")
    except TransferError as error:
        return {"error": str(error)}
    finally:
        sharing.forget()
        transfer.close()
        groups.close_all()
    return {
        "sums": [checksum(tensor) for tensor in weights.values()],
        "moved": transfer.moved[kind],
        "registrations": getattr(transfer, "registrations", 0),
        "offers": [
            member for member in EXISTING if me in EXISTING and member == me and board.get(f"weights/{me}/offer")
        ],
    }


def run(processes, store, kind, **arguments):
    members = EXISTING + NEW
    started = {me: processes.start(engine, store=store.address, me=me, kind=kind, **arguments) for me in members}
    for child in started.values():
        assert child.hear() == "created"
    return started


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_two_new_engines_read_every_weight_from_two_existing_ones(processes, store, kind):
    children = run(processes, store, kind)
    results = {me: child.result() for me, child in children.items()}
    assert all(result["sums"] == results["e0"]["sums"] for result in results.values())
    total = 4 * (300 * 64 + 64 * 64 + 7)
    assert [results[me]["moved"] for me in EXISTING + NEW] == [0, 0, total, total]
    assert all(result["registrations"] == 0 and result["offers"] == [] for result in results.values())


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_a_wrong_checksum_is_refused(processes, store, kind):
    children = run(processes, store, kind, fault="changed", seconds=3.0)
    readers = ["e2", "e3"] if kind == "nixl" else ["e3"]  # by p2p only e3 reads from e1
    for me in readers:
        assert "embedding arrived with checksum" in children[me].result()["error"]


def test_sources_that_differ_are_refused_before_anything_is_read(processes, store):
    children = run(processes, store, "nixl", fault="other weights", seconds=3.0)
    assert "engine e1 holds other weights than its peers: norm" in children["e2"].result()["error"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [("other shape", "not the same model"), ("other kind", "start all engines of a deployment with the same transfer")],
)
def test_a_reader_that_does_not_fit_is_told_why(processes, store, fault, text):
    children = run(processes, store, "nixl", fault=fault, seconds=3.0)
    assert text in children["e2"].result()["error"]


@pytest.mark.parametrize("kind", ["nixl", "p2p"])
def test_a_reader_that_dies_is_an_error_at_its_source_within_the_deadline(processes, store, kind):
    children = run(processes, store, kind, fault="silent", seconds=2.0)
    children["e2"].kill()
    error = children["e0"].result()["error"]
    assert ("weights/e2/read" in error) if kind == "nixl" else ("could not exchange" in error)
