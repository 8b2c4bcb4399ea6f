"""Bytes that a device still copies are not overwritten: the worker's stream, the main loop's, and a slow copy."""

from __future__ import annotations

import threading

import pytest
import torch

from elasticfsm.runtime.streams import PerThread, own_stream

pytestmark = pytest.mark.gpu
CYCLES = 200_000_000  # of the device's clock: about a tenth of a second
ROWS = 1 << 22


def beside(work, main):
    """Run work in a thread as an adapter beside the main loop runs: behind the main stream, done when it returns."""
    from elasticfsm.runtime.engine.driven_gpu import OnOwnStream

    class Adapter:
        def step(self):
            return work()

    adapter = OnOwnStream(Adapter(), main, PerThread())
    found = []
    thread = threading.Thread(target=lambda: found.append(adapter.step()))
    thread.start()
    thread.join(60)
    return found[0]


def test_staging_memory_is_not_used_again_while_a_slow_copy_reads_it():
    main = own_stream()
    staged = torch.ones(ROWS, device="cuda")
    live = torch.zeros(ROWS, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(main):
        torch.cuda._sleep(CYCLES)
        live.copy_(staged)  # experts.apply, delayed
    beside(lambda: staged.fill_(2.0), main)  # the next layer lands in the same memory
    torch.cuda.synchronize()
    assert live.eq(1.0).all(), "rows of the next layer were applied in place of this one's"


def test_without_the_order_the_slow_copy_takes_the_next_layer():
    main, other = own_stream(), own_stream()
    staged = torch.ones(ROWS, device="cuda")
    live = torch.zeros(ROWS, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(main):
        torch.cuda._sleep(CYCLES)
        live.copy_(staged)
    with torch.cuda.stream(other):
        staged.fill_(2.0)
    torch.cuda.synchronize()
    assert live.eq(2.0).all(), "the test above would pass whatever the order is"


def test_checksums_on_the_device_see_rows_that_were_just_stored():
    from elasticfsm.runtime.weights.transfer import checksum

    main = own_stream()
    row, new = torch.zeros(ROWS, device="cuda"), torch.rand(ROWS, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(main):
        torch.cuda._sleep(CYCLES)
        row.copy_(new)
    assert beside(lambda: checksum(row), main) == checksum(new)
