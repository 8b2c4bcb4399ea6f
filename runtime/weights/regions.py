"""Memory as peers see it: runs, regions of runs, and how two sides are cut and joined alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import torch
from torch import Tensor

from elasticfsm.errors import TransferError

# Over shared memory a post is synchronous: this bounds how long the lock is held. Between GPUs it returns at once.
BATCH_BYTES = {"DRAM": 256 << 20, "VRAM": 16 << 30}


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Contiguous memory: address and length in bytes, device index (0 for CPU), NIXL memory type."""

    address: int
    nbytes: int
    device: int
    memory: Literal["DRAM", "VRAM"]

    @property
    def end(self) -> int:
        """First address behind the run."""
        return self.address + self.nbytes

    def overlaps(self, other: Run) -> bool:
        """Whether both hold some byte."""
        same = (self.device, self.memory) == (other.device, other.memory)
        return same and self.address < other.end and other.address < self.end


class Region(msgspec.Struct, frozen=True):
    """A named sequence of runs that peers address by byte offset into their concatenation."""

    name: str
    runs: list[Run]

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return sum(run.nbytes for run in self.runs)

    def cut(self, offset: int, nbytes: int) -> list[Run]:
        """Return the memory behind [offset, offset + nbytes); raises TransferError outside of the region."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise TransferError(f"bytes {offset} to {offset + nbytes} of region {self.name!r} ({self.nbytes} bytes)")
        found, start = [], 0
        for run in self.runs:
            low, high = max(offset, start), min(offset + nbytes, start + run.nbytes)
            if low < high:
                found.append(Run(run.address + low - start, high - low, run.device, run.memory))
            start += run.nbytes
        return found


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the contiguous tensor's own memory as uint8 [nbytes]; raises TransferError if it has gaps."""
    if not tensor.is_contiguous():
        raise TransferError(f"a tensor of shape {tuple(tensor.shape)} and stride {tensor.stride()} is not contiguous")
    return tensor.detach().reshape(-1).view(torch.uint8)


def run_of(tensor: Tensor) -> Run:
    """Return where a tensor lies."""
    raw = as_bytes(tensor)
    on_gpu = raw.device.type == "cuda"
    return Run(raw.data_ptr(), raw.numel(), raw.device.index or 0 if on_gpu else 0, "VRAM" if on_gpu else "DRAM")


def merged(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with neighbours joined, in the order given: one descriptor instead of many."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if last and (last.end, last.device, last.memory) == (run.address, run.device, run.memory):
            joined[-1] = Run(last.address, last.nbytes + run.nbytes, last.device, last.memory)
        elif run.nbytes:
            joined.append(run)
    return joined


def covering(runs: Sequence[Run]) -> list[Run]:
    """Return the memory that the runs cover, by address, where they touch or overlap as one run."""
    covered: list[Run] = []
    for run in sorted(runs, key=lambda each: (each.memory, each.device, each.address)):
        last = covered[-1] if covered else None
        if last and (last.device, last.memory) == (run.device, run.memory) and run.address <= last.end:
            covered[-1] = Run(last.address, max(last.end, run.end) - last.address, run.device, run.memory)
        elif run.nbytes:
            covered.append(run)
    return covered


def pairs(local: Run, remote: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Cut local memory like the remote runs that fill it."""
    cut, start = [], local.address
    for run in remote:
        cut.append((Run(start, run.nbytes, local.device, local.memory), run))
        start += run.nbytes
    return cut


def joined(cut: Sequence[tuple[Run, Run]]) -> list[tuple[Run, Run]]:
    """Join pairs that continue on both sides: block size costs more than half of the speed on a GPU."""
    grown: list[tuple[Run, Run]] = []
    for pair in cut:
        both = [merged([before, after]) for before, after in zip(grown[-1], pair, strict=True)] if grown else []
        if both and all(len(side) == 1 for side in both):
            grown[-1] = both[0][0], both[1][0]
        else:
            grown.append(pair)
    return grown


def batches(cut: Sequence[tuple[Run, Run]]) -> list[list[tuple[Run, Run]]]:
    """Split into batches of at most BATCH_BYTES (a larger pair alone)."""
    cuts: list[list[tuple[Run, Run]]] = [[]]
    size = 0
    for pair in cut:
        if size and size + pair[0].nbytes > BATCH_BYTES[pair[0].memory]:
            cuts.append([])
            size = 0
        cuts[-1].append(pair)
        size += pair[0].nbytes
    return cuts
