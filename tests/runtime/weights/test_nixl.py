"""Real NIXL reads between two processes, and what happens when the source goes away."""

import pytest
import torch
from nixl_ends import MIB, start

from elasticfsm.errors import TransferError
from elasticfsm.runtime.weights.regions import Region, Run, merged


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
