"""Which physical slot computes a token for a logical expert: a table that all ranks derive from the placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticfsm.errors import PlacementError

IntArray = NDArray[np.integer[Any]]


class ExpertRouting:
    """The replicas of each logical expert in every layer.

    Built from `physical_to_logical`, an int array [layers, world_size * slots_per_rank], -1 for an empty slot; global
    slot = rank * slots_per_rank + local slot. Without one it routes nothing until all layers are set. Every expert
    needs a slot in every layer, else PlacementError.
    """

    def __init__(
        self,
        num_experts: int,
        slots_per_rank: int,
        physical_to_logical: IntArray | Tensor | Sequence[Sequence[int]] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_experts, self.slots_per_rank, self._device = num_experts, slots_per_rank, device
        self._replicas: dict[int, Tensor] = {}
        self._counts: dict[int, Tensor] = {}
        self._worlds: dict[int, int] = {}
        self._staging: dict[int, _Staging] = {}
        for layer, row in enumerate(physical_to_logical):
            self.set_layer(layer, row)

    def world_size(self, layer: int) -> int:
        """How many ranks the layer's placement is for; 0 while it has none."""
        return self._worlds.get(layer, 0)

    def set_layer(self, layer: int, physical_to_logical: IntArray | Tensor | Sequence[int]) -> None:
        """Replace one layer's placement [world_size * slots_per_rank], also by one of another world size.

        Nothing changes when it is refused. With the same world size the tables keep their addresses.
        """
        row = np.asarray(physical_to_logical, dtype=np.int64)
        self._check(layer, row)
        self._reserve(layer, row.size)
        held = np.flatnonzero(row >= 0)
        held = held[np.argsort(row[held], kind="stable")]  # by expert, slots ascending
        counts = np.bincount(row[held], minlength=self.num_experts)
        turns = np.arange(held.size) - np.repeat(np.cumsum(counts) - counts, counts)
        table = np.zeros(tuple(self._replicas[layer].shape), dtype=np.int64)
        table[row[held], turns] = held
        self._staging[layer].fill((table, counts))
        self._worlds[layer] = row.size // self.slots_per_rank

    def reserve(self, layers: int, world_size: int) -> None:
        """Give the tables of LAYERS layers their addresses for this number of ranks; it routes nothing yet."""
        for layer in range(layers):
            self._reserve(layer, world_size * self.slots_per_rank)

    def _reserve(self, layer: int, slots: int) -> None:
        # With every expert covered, one can have at most all surplus slots beside its own.
        shape = (self.num_experts, slots - self.num_experts + 1)
        if layer not in self._replicas or tuple(self._replicas[layer].shape) != shape:
            self._replicas[layer] = torch.zeros(shape, dtype=torch.int64, device=self._device)
            self._counts[layer] = torch.ones(self.num_experts, dtype=torch.int64, device=self._device)
            self._staging[layer] = _Staging([self._replicas[layer], self._counts[layer]])

    def local_slots(self, layer: int, experts: Tensor, rank: int) -> Tensor:
        """The slot on RANK for each choice, int64 like EXPERTS [gathered tokens, top_k]; out of range when elsewhere.

        A token takes replica number (its row in the gathered batch) mod (number of replicas), so that replicas share
        the load and all ranks agree without a message.
        """
        known = experts.clamp(min=0)
        turn = torch.arange(len(experts), device=experts.device)[:, None] % self._counts[layer][known]
        slots = self._replicas[layer][known, turn] - rank * self.slots_per_rank
        return torch.where(experts < 0, -1, slots)

    def _check(self, layer: int, row: IntArray) -> None:
        """Raise PlacementError unless every expert has a slot and every slot holds an expert or nothing."""
        if row.ndim != 1 or row.size % self.slots_per_rank:
            raise PlacementError(
                f"layer {layer}: placement has shape {list(row.shape)}, "
                f"expected [world size * {self.slots_per_rank}] ({self.slots_per_rank} slots per rank)"
            )
        wrong = np.flatnonzero((row < -1) | (row >= self.num_experts))
        if wrong.size:
            raise PlacementError(
                f"layer {layer}: slot {wrong[0]} holds expert {row[wrong[0]]}, expected -1 to {self.num_experts - 1}"
            )
        missing = np.setdiff1d(np.arange(self.num_experts), row).tolist()
        if missing:
            raise PlacementError(
                f"layer {layer}: experts {missing} have no slot; every expert needs one to serve tokens"
            )


class _Staging:
    """Pinned memory in front of tables on a device, allocated with them: none is to be had quickly at a switch."""

    def __init__(self, targets: Sequence[Tensor]) -> None:
        self._targets = targets
        self._pinned = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in targets if each.is_cuda]
        self._copied: Any = torch.cuda.Event() if self._pinned else None  # type: ignore[no-untyped-call]

    def fill(self, values: Sequence[NDArray[Any]]) -> None:
        """Copy to the device without waiting for it: processes that share a GPU wait milliseconds for a turn."""
        if not self._pinned:
            for target, value in zip(self._targets, values, strict=True):
                target.copy_(torch.from_numpy(value))
            return
        self._copied.synchronize()  # the copy before this one, which has long ended where a step lies between them
        for target, pinned, value in zip(self._targets, self._pinned, values, strict=True):
            pinned.numpy()[...] = value
            target.copy_(pinned, non_blocking=True)
        self._copied.record()
