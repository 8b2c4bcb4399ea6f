"""The ten rules of working with NIXL, each as something that a test can break."""

import threading
import time
from base64 import b64decode, b64encode

import pytest
import torch
from nixl_ends import MIB, source, start, transfer

from elasticfsm.errors import TransferError
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.weights.by_nixl import ERROR_MODE, NixlTransfer
from elasticfsm.runtime.weights.regions import run_of
from elasticfsm.runtime.weights.transfer import Piece


@pytest.fixture
def nixl():
    made = transfer("alone", None)
    yield made
    made.close()


def test_rule_1_an_agent_name_carries_engine_and_epoch_and_is_never_reused(nixl):
    first = nixl.agent_name
    nixl.renew()
    second = nixl.agent_name
    again = NixlTransfer("alone")  # the same engine, restarted
    assert {name.split("@")[0] for name in (first, second, again.agent_name)} == {"alone"}
    assert len({first, second, again.agent_name}) == 3
    again.close()


def released_in_flight(link, offer, floats):
    """Give up a read that is under way, go on for a second, and see what has become of its destination."""
    nixl = transfer("reader", "tcp")
    nixl.connect("source", b64decode(offer), Deadline(10, "connect"))
    live = torch.full((1000,), 3.0)
    landing = torch.zeros(floats)
    stop = threading.Event()
    prepared = nixl.prepare([[Piece("source", "weights", 0, landing)]])
    watcher = threading.Thread(target=lambda: (_until_landing(landing), stop.set()))
    watcher.start()
    try:
        prepared.run(0, [], Deadline(20, "the read", stop))
        error = ""
    except TransferError as failure:
        error = str(failure)
    watcher.join()
    prepared.release()
    seen = {"error": error, "quarantined": nixl.quarantined, "registrations": nixl.registrations}
    link.say("released")
    link.hear()
    seen["live"] = bool((live == 3.0).all())
    nixl.settle("source")
    seen |= {"settled": nixl.registrations, "left": nixl.quarantined}
    nixl.close()
    return seen


def _until_landing(landing):
    while not landing[0:4096].any() and not landing[-4096:].any():
        time.sleep(0.001)


def test_rule_2_a_destination_released_in_flight_stays_quarantined_until_its_peer_is_quiet(processes):
    target = processes.start(source, tls="tcp", floats=16 * MIB)
    offer, _ = target.hear()
    initiator = processes.start(released_in_flight, offer=offer, floats=16 * MIB)
    assert initiator.hear() == "released"
    target.say("end")
    target.result()
    initiator.say("go on")
    seen = initiator.result()
    assert "still reads from engine source" in seen["error"]
    assert (seen["quarantined"], seen["registrations"]) == (1, 1)  # although it was released
    assert seen["live"]
    assert (seen["left"], seen["settled"]) == (0, 0)


def freeing(link, tls, floats):
    """A source that deregisters while it is read, and keeps its memory."""
    nixl = transfer("source", tls)
    memory = torch.arange(floats, dtype=torch.float32)
    nixl.offer("weights", [memory])
    link.say(b64encode(nixl.describe(["weights"])).decode())
    link.hear()
    nixl.withdraw("weights")
    link.say("withdrawn")
    link.hear()
    nixl.close()
    return "alive"


def early(link, offer, floats):
    nixl = transfer("reader", "tcp")
    nixl.connect("source", b64decode(offer), Deadline(10, "connect"))
    landing = torch.zeros(floats)
    link.say("connected")
    link.hear()
    try:
        nixl.exchange([Piece("source", "weights", 0, landing)], [], Deadline(8, "the read"))
        outcome = "right" if torch.equal(landing, torch.arange(floats, dtype=torch.float32)) else "stale"
    except TransferError as error:
        outcome = str(error)
    nixl.close()
    return outcome


def test_rule_3_withdrawing_revokes_nothing_so_the_source_keeps_its_memory_and_survives(processes):
    target = processes.start(freeing, tls="tcp", floats=4 * MIB)
    initiator = processes.start(early, offer=target.hear(), floats=4 * MIB)
    assert initiator.hear() == "connected"
    target.say("withdraw")
    assert target.hear() == "withdrawn"
    initiator.say("read")
    outcome = initiator.result()
    assert outcome == "right" or "engine source" in outcome  # never a wrong byte that passes for a right one
    target.say("end")
    assert target.result() == "alive"


def test_rule_4_every_wait_has_our_deadline(processes):
    target, initiator, _ = start(processes, "tcp", within=0.5)
    target.stop()
    initiator.say("read")
    assert initiator.hear() == "failed"
    initiator.say(None)
    assert "nothing came within 0.5 s" in initiator.result()["error"]
    target.resume()


def test_rule_5_a_typed_error_is_terminal_for_that_agent(processes):
    target, initiator, _ = start(processes)
    target.kill()
    initiator.say("read")
    assert initiator.hear() == "failed"
    initiator.say(None)
    assert "it has to renew its name first" in initiator.result()["same name"]


def test_rule_6_the_error_mode_is_peer(nixl):
    assert ERROR_MODE == "peer"
    assert nixl.agent.get_backend_params("UCX")["ucx_error_handling_mode"] == "peer"


def test_rule_7_somebody_makes_progress_exactly_while_peers_may_connect(nixl):
    def pumps():
        return [thread for thread in threading.enumerate() if thread.name == "nixl-pump-alone"]

    memory = torch.zeros(1000)
    nixl.offer("weights", [memory])
    assert not pumps()
    nixl.describe(["weights"])
    assert len(pumps()) == 1
    nixl.rest(["weights"])
    assert not pumps()
    nixl.describe(["weights"])
    nixl.withdraw("weights")
    assert not pumps()


def test_rule_8_an_idle_death_is_told_by_us_and_only_then_the_peer_is_settled(processes):
    target, initiator, _ = start(processes)
    target.kill()  # NIXL says nothing until the next read, which fails at once
    initiator.say("read")
    assert initiator.hear() == "failed"
    initiator.say(None)
    outcome = initiator.result()
    assert outcome["quarantined"] in (0, 1)
    assert outcome["settled"] == 0


def test_rule_9_metadata_is_our_bytes_and_covers_only_what_is_offered(nixl):
    memory = torch.zeros(1000)
    nixl.offer("weights", [memory])
    described = nixl.describe(["weights"])
    with pytest.raises(TransferError, match="expected engine other"):
        nixl.connect("other", described, Deadline(1, "connect"))
    with pytest.raises(TransferError, match="cannot be read"):
        nixl.connect("other", b"\x00garbage", Deadline(1, "connect"))
    with pytest.raises(TransferError, match="not connected"):
        nixl.prepare([[Piece("other", "weights", 0, memory)]])


def crowd(link, tls, floats, offer):
    """Four threads read at once through one agent."""
    nixl = transfer("reader", tls)
    nixl.connect("source", b64decode(offer), Deadline(10, "connect"))
    landings = [torch.zeros(floats) for _ in range(4)]

    def read(landing):
        nixl.exchange([Piece("source", "weights", 0, landing)], [], Deadline(20, "the read"))

    threads = [threading.Thread(target=read, args=(landing,)) for landing in landings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = torch.arange(floats, dtype=torch.float32)
    outcome = [all(torch.equal(landing, wanted) for landing in landings), nixl.registrations]
    nixl.close()
    return outcome


def test_rule_10_several_threads_share_one_agent_behind_one_lock(processes):
    target = processes.start(source, tls="tcp", floats=MIB)
    offer, _ = target.hear()
    assert processes.start(crowd, tls="tcp", floats=MIB, offer=offer).result() == [True, 0]
    target.say("end")
    target.result()


def test_memory_is_never_registered_twice(nixl):
    memory = torch.zeros(1000)
    nixl.offer("weights", [memory])
    with pytest.raises(TransferError, match="registered already"):
        nixl.land([run_of(memory[10:20])], [memory])
