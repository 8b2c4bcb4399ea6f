"""Real NIXL reads between two processes, and what happens when the source goes away."""

import os
from base64 import b64decode, b64encode

import pytest
import torch

from elasticfsm.errors import TransferError
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.weights.regions import Region, Run, merged
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


@pytest.mark.parametrize("tls", [None, "tcp"])
def test_a_read_brings_the_right_bytes_and_leaves_no_registration(processes, tls):
    target, initiator, sums = start(processes, tls)
    initiator.say("read")
    outcome = initiator.result()
    assert outcome["checksums"] == sums
    assert outcome["moved"] == 4 * (MIB + 1000)
    assert (outcome["connected"], outcome["registrations"], outcome["quarantined"]) == (0, 0, 0)
    target.say("end")
    assert target.result() == 0


def test_a_source_that_is_gone_is_an_error_at_once_and_its_agent_is_never_talked_to_again(processes):
    target, initiator, _ = start(processes)
    target.kill()
    initiator.say("read")
    assert initiator.hear() == "failed"
    initiator.say(None)
    outcome = initiator.result()
    assert "could not read from engine source" in outcome["error"]
    assert "failed before; it has to renew its name" in outcome["same name"]


def test_a_source_killed_in_mid_read_quarantines_the_destination(processes):
    target, initiator, _ = start(processes, "tcp", 48 * MIB, within=20.0)
    initiator.say("announce")
    assert initiator.hear() == "reading"
    target.kill()
    assert initiator.hear() == "failed"
    initiator.say(None)
    outcome = initiator.result()
    assert "engine source" in outcome["error"]
    assert (outcome["quarantined"], outcome["registrations"], outcome["settled"]) == (1, 1, 0)
    assert outcome["moved"] == 0


def test_a_stopped_source_is_an_error_at_the_deadline_and_comes_back_under_a_new_name(processes):
    target, initiator, _ = start(processes, "tcp", within=1.0)
    target.stop()
    initiator.say("read")
    assert initiator.hear() == "failed"
    target.resume()
    target.say("renew")
    initiator.say(target.hear())
    outcome = initiator.result()
    assert "nothing came within 1 s" in outcome["error"]
    assert outcome["quarantined"] == 1
    assert outcome["again"] == [0.0, 1.0, 2.0]


def test_neighbours_become_one_descriptor_and_offsets_are_found_again():
    block = torch.zeros(4, 8)
    runs = [Run(row.data_ptr(), 32, 0, "DRAM") for row in block]
    assert [run.nbytes for run in merged(runs)] == [128]
    assert [run.nbytes for run in merged([runs[0], runs[2], runs[3]])] == [32, 64]
    region = Region("r", merged([runs[0], runs[2]]))
    assert region.cut(16, 32) == [
        Run(runs[0].address + 16, 16, 0, "DRAM"),
        Run(runs[2].address, 16, 0, "DRAM"),
    ]
    with pytest.raises(TransferError, match="bytes 60 to 70 of region 'r'"):
        region.cut(60, 10)
