"""A device that does things in the order in which they were issued: nothing shipped waits for ever in it, KB01 does."""

from __future__ import annotations

import pytest

from elasticfsm.check.engine import explored
from elasticfsm.check.liveness import stranded
from elasticfsm.check.world import Regime, World, sizes_of
from elasticfsm.compile import compile_protocol
from elasticfsm.patch import load_patch, patched, shipped_patches
from elasticfsm.protocol import load

QUEUE = Regime(device="in_order")


@pytest.mark.parametrize("protocol", ["scale_up", "scale_down"])
def test_shipped_protocols_end_on_a_device_with_one_queue(protocol: str) -> None:
    shipped = compile_protocol(load(protocol))
    graph = explored(World(shipped, sizes_of(shipped, "1+1"), QUEUE))
    assert not graph.refuted
    assert stranded(graph) is None
    assert len(graph.states) > 1000


def test_a_rehearsal_issued_at_any_time_waits_for_ever_in_that_queue_and_in_no_other() -> None:
    wrong = patched(*load_patch(next(path for path in shipped_patches() if path.stem == "kb01")))
    refuted = [set(explored(World(wrong, sizes_of(wrong, "2+1"), regime)).refuted) for regime in (QUEUE, Regime())]
    assert [("no_deadlock" in each) for each in refuted] == [True, False]
