"""One end of the transfer measurement: `python -m ... source|reader STORE OUT`. Rows of experts in VRAM, three ways.

NIXL through our interface and by hand, NCCL point to point, and the plain copy that no way can beat. Both ends walk
through the same list; every row that arrives is compared with what the source drew.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...creation import Limits
from ...deadline import Deadline
from ...groups import Groups
from ...store import StoreClient
from ...streams import own_stream
from ...weights.board import StoreBoard
from ...weights.by_nixl import NixlTransfer
from ...weights.regions import as_bytes
from ...weights.transfer import Piece

SIZES_MB = (1.0, 4.7, 44.0)
TOTALS = {1: 64 << 20, 2: 512 << 20}  # bytes of one move by number of GPUs: on one of them NIXL goes over TCP
MOST_ROWS = 128
REPEATS = 5
MEMBERS = ("source", "reader")


def shape(size_mb: float) -> tuple[int, int]:
    """(rows, bytes of one): an expert of so many MB, as many rows as a layer of a large rank may move."""
    nbytes = int(size_mb * 1e6) // 512 * 512
    total = TOTALS[min(2, torch.cuda.device_count())]
    return max(2, min(MOST_ROWS, total // nbytes)), nbytes


def drawn(size_mb: float) -> Tensor:
    """What the source holds: every second row is moved by scattered reads, the first half by adjacent ones."""
    rows, nbytes = shape(size_mb)
    generator = torch.Generator("cuda").manual_seed(int(size_mb * 10))
    return torch.randint(0, 256, (2 * rows, nbytes), dtype=torch.uint8, device="cuda", generator=generator)


class End:
    """What both ends have: groups, an agent, a board."""

    def __init__(self, name: str, store: str, seconds: float = 120.0) -> None:
        self.name, self.rank = name, MEMBERS.index(name)
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.set_stream(own_stream())
        self.board = StoreBoard(StoreClient(store), "rows")
        self.deadline = Deadline(seconds, f"{name} of the transfer measurement")
        self.groups = Groups(store, limits=Limits(connect=60.0), backend="nccl")
        self.groups.plan("rows-groups", 1, MEMBERS, name)
        self.groups.create("active")
        self.nixl = NixlTransfer(name)

    def wait(self, key: str) -> bytes:
        """Wait for a key, pumping."""
        while (value := self.board.get(key)) is None:
            self.nixl.pump()
            time.sleep(min(0.0005, self.deadline.slice()))
        return value

    def meet(self, name: str) -> None:
        """Return when both ends are here."""
        self.board.set(f"{name}/{self.name}", b"here")
        self.wait(f"{name}/{MEMBERS[1 - self.rank]}")

    def nccl(self, tensors: list[Tensor]) -> float:
        """Pass rows to the other end as one grouped operation; seconds until the device is done."""
        rows = self.groups.need("active").rows
        if rows is None:
            raise RuntimeError("no group for rows")
        ends = [(as_bytes(tensor), 1 - self.rank) for tensor in tensors]
        torch.cuda.current_stream().synchronize()
        begin = time.perf_counter()
        pending = rows.post_rows([], ends) if self.rank == 0 else rows.post_rows(ends, [])
        while not pending.done():
            pass
        took = time.perf_counter() - begin
        pending.wait()
        return took


def source(end: End) -> None:
    """Offer, then take part in what needs two."""
    for size in SIZES_MB:
        rows, _ = shape(size)
        held = drawn(size)
        torch.cuda.current_stream().synchronize()
        end.nixl.offer("rows", [held])
        end.board.set(f"offer/{size}", end.nixl.describe(["rows"]))
        end.wait(f"read/{size}")
        for part in (held[:rows], held[::2]):
            for repeat in range(REPEATS):
                end.meet(f"nccl/{size}/{part.stride(0)}/{repeat}")
                end.nccl(list(part))
        end.nixl.withdraw("rows")
        del held


def reader(end: End) -> list[dict[str, Any]]:
    """Measure every way at every size."""
    return [_measure(end, size) for size in SIZES_MB]


def _measure(end: End, size: float) -> dict[str, Any]:
    rows, nbytes = shape(size)
    expected = drawn(size)
    into = torch.zeros(rows, nbytes, dtype=torch.uint8, device="cuda")
    end.nixl.connect("source", end.wait(f"offer/{size}"), end.deadline)
    total = rows * nbytes
    found: dict[str, Any] = {"mb": size, "rows": rows, "bytes": total}
    wrong = 0
    ways = {"adjacent": expected[:rows], "scattered": expected[::2]}
    for name, wanted in ways.items():
        step = 1 if name == "adjacent" else 2
        pieces = [Piece("source", "rows", index * step * nbytes, into[index]) for index in range(rows)]
        times = [_ours(end, pieces) for _ in range(REPEATS)]
        wrong += _differ(into, wanted)
        found[f"ours_{name}"] = total / statistics.median(times[1:]) / 1e9
        found[f"ours_{name}_first"] = total / times[0] / 1e9
        times = [_by_hand(end, pieces, joined=name == "adjacent") for _ in range(REPEATS)]
        wrong += _differ(into, wanted)
        found[f"raw_{name}"] = total / statistics.median(times[1:]) / 1e9
    pieces = [Piece("source", "rows", index * nbytes, into[index]) for index in range(rows)]
    times = [_by_hand(end, pieces, joined=False) for _ in range(REPEATS)]
    found["one_descriptor_per_expert"] = total / statistics.median(times[1:]) / 1e9
    end.nixl.forget("source")
    end.board.set(f"read/{size}", b"done")
    for name, wanted in ways.items():
        times = []
        for repeat in range(REPEATS):
            end.meet(f"nccl/{size}/{wanted.stride(0)}/{repeat}")
            times.append(end.nccl(list(into)))
        wrong += _differ(into, wanted)
        found[f"nccl_{name}"] = total / statistics.median(times[1:]) / 1e9
    where = "cuda:1" if torch.cuda.device_count() > 1 else "cuda:0"
    there = expected[:rows].to(where)
    found["copy"] = total / _copied(lambda: into.copy_(there, non_blocking=True)) / 1e9
    found["copy_by_rows"] = (
        total / _copied(lambda: [one.copy_(row) for one, row in zip(into, there, strict=True)]) / 1e9
    )
    found["wrong_rows"] = wrong
    return found


def _ours(end: End, pieces: list[Piece]) -> float:
    """Seconds of one prepared read; preparing is paid once a plan."""
    prepared = end.nixl.prepare([pieces])
    torch.cuda.current_stream().synchronize()
    begin = time.perf_counter()
    prepared.run(0, [], end.deadline)
    took = time.perf_counter() - begin
    prepared.release()
    return took


def _by_hand(end: End, pieces: list[Piece], joined: bool) -> float:
    """Seconds of the same read with NIXL's own calls and a busy wait; JOINED: one descriptor for all."""
    transfer, agent = end.nixl, end.nixl.agent
    first, last = as_bytes(pieces[0].tensor), as_bytes(pieces[-1].tensor)
    nbytes = first.numel()
    span = last.data_ptr() + nbytes - first.data_ptr()
    base = transfer.region_of("source", "rows").runs[0]
    memory = agent.register_memory(agent.get_reg_descs([(first.data_ptr(), span, 0, "")], "VRAM"))
    mine = [(as_bytes(piece.tensor).data_ptr(), nbytes, 0) for piece in pieces]
    theirs = [(base.address + piece.offset, nbytes, base.device) for piece in pieces]
    if joined:
        mine, theirs = [(mine[0][0], span, 0)], [(theirs[0][0], span, base.device)]
    local, remote = agent.get_xfer_descs(mine, "VRAM"), agent.get_xfer_descs(theirs, "VRAM")
    handle = agent.initialize_xfer("READ", local, remote, transfer.agent_of("source"))
    torch.cuda.current_stream().synchronize()
    begin = time.perf_counter()
    state = agent.transfer(handle)
    while state != "DONE":
        end.deadline.slice()
        state = agent.check_xfer_state(handle)
    took = time.perf_counter() - begin
    handle.release()
    agent.deregister_memory(memory)
    return took


def _copied(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.current_stream().synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def _differ(into: Tensor, wanted: Tensor) -> int:
    """How many rows are not what the source holds; the memory is poisoned for the next way."""
    count = int((into != wanted).any(dim=1).sum())
    into.fill_(0xA5)
    torch.cuda.current_stream().synchronize()
    return count


def main(name: str, store: str, out: str) -> None:
    """One end, from start to end."""
    end = End(name, store)
    if name == "reader":
        Path(out).write_text(json.dumps(reader(end)))
    else:
        source(end)
    end.meet("bye")
    end.nixl.close()
    end.groups.close_all(10)


if __name__ == "__main__":
    main(*sys.argv[1:4])
