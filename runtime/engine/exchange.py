"""How the ranks of one expert-parallel group exchange a layer's tokens."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class ExpertExchange(Protocol):
    """One rank's side of a group; both methods are collectives that all ranks enter in the same order, and block."""

    @property
    def rank(self) -> int:
        """This rank."""
        ...

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        ...

    def dispatch(self, packed: Tensor) -> Tensor:
        """All-gather: PACKED [max_tokens, columns] of every rank, in rank order, [world_size * max_tokens, columns]."""
        ...

    def combine(self, partial: Tensor) -> Tensor:
        """Reduce-scatter (sum): PARTIAL [world_size * max_tokens, hidden] of every rank to own [max_tokens, hidden]."""
        ...


class LocalExchange:
    """The exchange of a group of one rank: nothing moves."""

    rank = 0
    world_size = 1

    def dispatch(self, packed: Tensor) -> Tensor:
        """Return PACKED itself."""
        return packed

    def combine(self, partial: Tensor) -> Tensor:
        """Return PARTIAL itself."""
        return partial


class Collectives(Protocol):
    """What a process group must offer; `Group` of the runtime does. Errors of the group pass through the forward."""

    rank: int
    size: int

    def all_gather(self, out: Tensor, t: Tensor) -> None:
        """Gather T [n, ...] of every rank into OUT [size * n, ...], in rank order."""
        ...

    def reduce_scatter(self, out: Tensor, t: Tensor) -> None:
        """Sum T [size * n, ...] over all ranks and keep own rows in OUT [n, ...]."""
        ...


class GroupExchange:
    """The exchange over a process group; results are fresh tensors, since a group that was cut may hold old ones."""

    def __init__(self, group: Collectives) -> None:
        self._group = group
        self.rank, self.world_size = group.rank, group.size

    def dispatch(self, packed: Tensor) -> Tensor:
        """All-gather."""
        out = torch.empty(self.world_size * packed.shape[0], packed.shape[1], dtype=packed.dtype, device=packed.device)
        self._group.all_gather(out, packed)
        return out

    def combine(self, partial: Tensor) -> Tensor:
        """Reduce-scatter."""
        rows = partial.shape[0] // self.world_size
        out = torch.empty(rows, partial.shape[1], dtype=partial.dtype, device=partial.device)
        self._group.reduce_scatter(out, partial)
        return out
