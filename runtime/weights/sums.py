"""Checksums where the bytes lie: a GPU sums its own memory, 32 bits go to the host."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 1 << 24  # words summed at a time: bounds the memory that a sum takes
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # a large odd number: every word weighs differently by its place


def device_checksum(raw: Tensor) -> int:
    """Sum bytes uint8 [n] on their own device, each 4-byte word weighted by its place; 32 bits.

    Waits for the current stream. Equal bytes give equal sums on every device; it is no CRC.
    """
    whole = raw.numel() // 4 * 4
    words = raw[:whole].view(torch.int32)
    total = torch.zeros((), dtype=torch.int64, device=raw.device)
    for start in range(0, words.numel(), CHUNK):
        part = words[start : start + CHUNK]
        places = torch.arange(start, start + part.numel(), dtype=torch.int64, device=raw.device)
        total += ((places * _ODD) | 1).mul_(part).sum()
    rest = int.from_bytes(bytes(raw[whole:].tolist()), "big") * _ODD
    number = (int(total) + rest) & ((1 << 64) - 1)
    return (number ^ (number >> 32)) & 0xFFFFFFFF
