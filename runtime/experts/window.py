"""Loads of the last steps: how many tokens this rank routed to each expert, step by step."""

from __future__ import annotations

import torch
from torch import Tensor


class LoadWindow:
    """A ring of the last `steps` steps, int64 [steps, layers, experts]; main loop only."""

    def __init__(self, steps: int, layers: int, experts: int, device: torch.device | str = "cpu") -> None:
        self._ring = torch.zeros(max(1, steps), layers, experts, dtype=torch.int64, device=device)
        self._at = 0

    def add(self, load: Tensor) -> None:
        """Take the loads of one step, int64 [layers, experts], in place of the oldest."""
        self._ring[self._at].copy_(load)
        self._at = (self._at + 1) % len(self._ring)

    def total(self) -> Tensor:
        """Return the sum over the window, int64 [layers, experts]."""
        return self._ring.sum(dim=0)
