"""Two processes for tests of NIXL: one that offers a region and one that reads it."""

import os
from base64 import b64decode, b64encode

import torch

from elasticfsm.errors import TransferError
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.weights.transfer import Piece, checksum

MIB = 1 << 20


def source(link, tls, floats):
    """Offer one region of three tensors until told to end; "renew" goes on under a new name."""
    nixl = transfer("source", tls)
    memory = torch.arange(floats, dtype=torch.float32)
    tensors = [memory[: floats // 4], memory[floats // 4 :], torch.full((1000,), 7.0)]
    nixl.offer("weights", tensors)
    link.say([b64encode(nixl.describe(["weights"])).decode(), [checksum(tensor) for tensor in tensors]])
    while link.hear(60) == "renew":
        nixl.renew()
        link.say(b64encode(nixl.describe(["weights"])).decode())
    nixl.close()
    return nixl.registrations


def reader(link, tls, floats, offer, within):
    """Connect, say so, read when told; return what came of it. A second offer may follow a failure."""
    nixl = transfer("reader", tls)
    nixl.connect("source", b64decode(offer), Deadline(10, "connect"))
    outcome = {"connected": nixl.registrations}
    wanted = [torch.zeros(floats), torch.zeros(1000)]
    pieces = [Piece("source", "weights", 0, wanted[0]), Piece("source", "weights", 4 * floats, wanted[1])]
    link.say("connected")
    if link.hear() == "announce":
        link.say("reading")
    try:
        nixl.exchange(pieces, [], Deadline(within, "the read"))
        outcome["checksums"] = [
            checksum(each) for each in (wanted[0][: floats // 4], wanted[0][floats // 4 :], wanted[1])
        ]
    except TransferError as error:
        outcome["error"] = str(error)
    outcome |= {"moved": nixl.moved["nixl"], "registrations": nixl.registrations, "quarantined": nixl.quarantined}
    if "error" in outcome:
        outcome |= after_failure(link, nixl, offer, wanted[1])
    nixl.close()
    return outcome


def after_failure(link, nixl, offer, wanted):
    seen = {}
    try:
        nixl.connect("source", b64decode(offer), Deadline(1, "connect again"))
    except TransferError as error:
        seen["same name"] = str(error)
    link.say("failed")
    if renewed := link.hear():
        nixl.connect("source", b64decode(renewed), Deadline(10, "connect to the new name"))
        wanted = torch.zeros_like(wanted)  # the old one is quarantined
        nixl.exchange([Piece("source", "weights", 0, wanted)], [], Deadline(10, "read again"))
        seen["again"] = wanted[:3].tolist()
    nixl.settle("source")
    return seen | {"settled": nixl.registrations}


def transfer(engine, tls):
    if tls:
        os.environ["UCX_TLS"] = tls
    os.environ["UCX_LOG_LEVEL"] = "fatal"
    from elasticfsm.runtime.weights.by_nixl import NixlTransfer

    return NixlTransfer(engine)


def start(processes, tls=None, floats=MIB, within=10.0):
    target = processes.start(source, tls=tls, floats=floats)
    offer, sums = target.hear()
    initiator = processes.start(reader, tls=tls, floats=floats, offer=offer, within=within)
    assert initiator.hear() == "connected"
    return target, initiator, sums
