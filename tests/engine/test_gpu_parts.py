"""Parts of the GPU runtime that need no GPU: streams have one owner, seats are shared fairly, sums see every byte."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from elasticfsm.errors import GroupError, ModelError, RequestRefused, TransferError
from elasticfsm.runtime import gpus, streams
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.engine.generated import GeneratedCheckpoint, open_checkpoint
from elasticfsm.runtime.engine.weights import WeightSpec
from elasticfsm.runtime.experts.slots import NCCL, NIXL, Lanes, SlotReads
from elasticfsm.runtime.experts.state import Part
from elasticfsm.runtime.models import PSALTER
from elasticfsm.runtime.weights.sums import device_checksum


@pytest.fixture
def pool(monkeypatch):
    """A pool like torch's: 32 streams in turn."""
    numbers = itertools.count()
    monkeypatch.setattr(streams, "_taken", {})
    monkeypatch.setattr(
        torch.cuda, "Stream", lambda priority=0: SimpleNamespace(cuda_stream=next(numbers) % streams.POOL)
    )


def test_no_stream_has_two_owners_and_the_last_one_is_said(pool):
    taken = {streams.own_stream().cuda_stream for _ in range(streams.POOL)}
    assert len(taken) == streams.POOL
    with pytest.raises(GroupError, match="one per purpose"):
        streams.own_stream()


def test_engines_take_the_gpu_with_fewest_engines_and_see_it_first(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seats = gpus.Seats(2)
    assert seats.take("e0")["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert seats.take("e1")["CUDA_VISIBLE_DEVICES"] == "1,0"
    seats.leave("e1")
    assert seats.take("e2")["CUDA_VISIBLE_DEVICES"] == "1,0"


def test_what_the_user_set_for_nccl_stays(monkeypatch):
    monkeypatch.setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0")
    assert "NCCL_LAUNCH_ORDER_IMPLICIT" not in gpus.Seats(1).take("e0")


def test_a_machine_without_a_gpu_is_told_so():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(RequestRefused, match="sees no GPU"):
        gpus.seats()


def test_the_sum_of_a_device_sees_swapped_words_and_odd_ends():
    raw = torch.randint(0, 256, (1003,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = device_checksum(raw)
    swapped = raw.clone()
    swapped[:8] = torch.cat([raw[4:8], raw[:4]])
    changed = raw.clone()
    changed[-1] ^= 1
    assert device_checksum(raw.clone()) == whole
    assert len({whole, device_checksum(swapped), device_checksum(changed)}) == 3


def test_drawn_weights_are_the_same_on_every_engine_and_differ_by_name():
    source = GeneratedCheckpoint(None, 7)
    one, other, third = (torch.empty(8, 8) for _ in range(3))
    source.read_into(WeightSpec("a.weight", (8, 8), ()), one)
    source.read_into(WeightSpec("a.weight", (8, 8), ()), other)
    source.read_into(WeightSpec("b.weight", (8, 8), ()), third)
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def test_a_model_with_files_is_read_from_them():
    with pytest.raises((ModelError, AttributeError)):
        open_checkpoint(PSALTER / "nowhere", None)


def lanes(wish: str, rate: float, gbs: float, alive: bool = True, preparing: bool = False) -> tuple[Lanes, list[str]]:
    said: list[str] = []
    rows = SimpleNamespace(alive=alive, gbs=gbs)
    state = SimpleNamespace(
        generation=lambda name: SimpleNamespace(rows=rows) if name == "active" or preparing else None,
        transfer=SimpleNamespace(kind=NIXL, rate=rate),
    )
    return Lanes(state, wish, said.append), said


def test_all_ranks_take_the_way_that_is_faster_on_the_slowest_rank():
    fast, said = lanes("auto", 100.0, 50.0)
    slow, _ = lanes("auto", 0.5, 60.0)
    largest = [max(pair) for pair in zip(fast.bids(), slow.bids(), strict=True)]
    for each in (fast, slow):
        each.heard(largest)
    assert fast.lane == slow.lane == NCCL
    assert "nixl 0.50 GB/s, nccl 50.00 GB/s" in said[0]


def test_a_way_that_one_rank_cannot_use_is_used_by_none():
    fine, _ = lanes("p2p", 0.5, 60.0)
    broken, _ = lanes("p2p", 0.5, 60.0, alive=False)
    largest = [max(pair) for pair in zip(fine.bids(), broken.bids(), strict=True)]
    fine.heard(largest)
    assert fine.lane == NIXL


def test_while_one_rank_prepares_a_generation_none_moves_rows_by_the_device():
    serving, _ = lanes("p2p", 0.5, 60.0)
    preparing, _ = lanes("p2p", 0.5, 60.0, preparing=True)
    serving.heard([max(pair) for pair in zip(serving.bids(), preparing.bids(), strict=True)])
    assert serving.lane == NIXL


def test_a_capture_begins_when_the_device_moves_no_rows_any_more():
    moving, _ = lanes("p2p", 0.5, 60.0)
    moving._state.target = object()
    assert not moving.moving()
    moving.heard(moving.bids())
    assert moving.moving()
    moving._state.target = None
    assert not moving.moving()


class Rows:
    """A group of the device for rows whose operations end when `ended` says so."""

    alive, ended, cut_because = True, False, ""

    def timed_rows(self, incoming, outgoing):
        return SimpleNamespace(done=lambda: self.ended, wait=self.wait), lambda: None

    def wait(self, within, cancelled):
        Deadline(within, "the rows", cancelled).slice()

    def cut(self, reason):
        self.alive, self.cut_because = False, reason


def posted() -> tuple[SlotReads, Rows]:
    """Reads of one part, the rows of which are under way."""
    memory = SimpleNamespace(slot_tensors=lambda layer, slot: [torch.zeros(4)])
    transfer = SimpleNamespace(moved={})
    state = SimpleNamespace(memory=memory, slots_per_rank=2, transfer=transfer, parts=[])
    rows = Rows()
    reads = SlotReads(state, SimpleNamespace(rows=rows, rank=0, members=("e0", "e1"), world_size=2))
    reads.post(Part(0, None, [], True))
    return reads, rows


def test_rows_that_nobody_waits_for_do_not_stay_on_the_device():
    reads, rows = posted()
    reads.release()
    assert "given up" in rows.cut_because


def test_rows_that_have_come_leave_their_group_open():
    reads, rows = posted()
    rows.ended = True
    reads.release()
    assert rows.alive


def test_a_wait_for_rows_ends_when_the_list_is_withdrawn():
    reads, _ = posted()
    with pytest.raises(TransferError, match="cancelled"):
        reads.fetch(Part(0, None, [], True), Deadline(60, "the read", lambda: True))
