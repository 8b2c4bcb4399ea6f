"""Which physical slot computes a token for a logical expert: a table that all ranks derive from the placement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticfsm.errors import PlacementError

IntArray = NDArray[np.int64]


class ExpertRouting:
    """The replicas of each logical expert, for one rank of one group.

    Built from `physical_to_logical`, an int array [layers, world_size * slots_per_rank], -1 for an empty slot; global
    slot = rank * slots_per_rank + local slot. Every expert needs a slot in every layer, else PlacementError.
    """

    def __init__(
        self,
        physical_to_logical: IntArray | Tensor | Sequence[Sequence[int]],
        num_experts: int,
        rank: int,
        world_size: int,
        device: torch.device | str = "cpu",
    ) -> None:
        table = np.asarray(physical_to_logical, dtype=np.int64)
        if table.ndim != 2 or table.shape[1] % world_size or not 0 <= rank < world_size:
            raise PlacementError(
                f"placement of shape {list(table.shape)} does not fit rank {rank} of {world_size} ranks; "
                "expected [layers, world_size * slots_per_rank]"
            )
        self.num_experts, self.rank, self.world_size = num_experts, rank, world_size
        self.slots_per_rank = table.shape[1] // world_size
        self.physical_to_logical = table.copy()
        # With every expert covered, one can have at most all surplus slots beside its own.
        most = max(1, table.shape[1] - num_experts + 1)
        self._replicas = torch.zeros((table.shape[0], num_experts, most), dtype=torch.int64, device=device)
        self._counts = torch.ones((table.shape[0], num_experts), dtype=torch.int64, device=device)
        for layer, row in enumerate(table):
            self.set_layer(layer, row)

    def set_layer(self, layer: int, physical_to_logical: IntArray | Tensor | Sequence[int]) -> None:
        """Replace one layer's placement [world_size * slots_per_rank] in place; nothing changes when it is refused."""
        row = np.asarray(physical_to_logical, dtype=np.int64)
        replicas = self._replicas_of(layer, row)
        for expert, slots in enumerate(replicas):
            self._replicas[layer, expert, : len(slots)] = torch.tensor(slots)
        self._counts[layer] = torch.tensor([len(slots) for slots in replicas])
        self.physical_to_logical[layer] = row

    def local_slots(self, layer: int, experts: Tensor) -> Tensor:
        """This rank's slot for each choice, int64 like EXPERTS [gathered tokens, top_k]; out of range when elsewhere.

        A token takes replica number (its row in the gathered batch) mod (number of replicas), so that replicas share
        the load and all ranks agree without a message.
        """
        known = experts.clamp(min=0)
        turn = torch.arange(len(experts), device=experts.device)[:, None] % self._counts[layer][known]
        slots = self._replicas[layer][known, turn] - self.rank * self.slots_per_rank
        return torch.where(experts < 0, -1, slots)

    def _replicas_of(self, layer: int, row: IntArray) -> list[list[int]]:
        expected = list(self.physical_to_logical.shape[1:])
        if list(row.shape) != expected:
            raise PlacementError(
                f"layer {layer}: placement has shape {list(row.shape)}, expected {expected} "
                f"(world size {self.world_size} * {self.slots_per_rank} slots)"
            )
        replicas: list[list[int]] = [[] for _ in range(self.num_experts)]
        for slot, expert in enumerate(row.tolist()):
            if not -1 <= expert < self.num_experts:
                raise PlacementError(
                    f"layer {layer}: slot {slot} holds expert {expert}, expected -1..{self.num_experts - 1}"
                )
            if expert >= 0:
                replicas[expert].append(slot)
        missing = [expert for expert, slots in enumerate(replicas) if not slots]
        if missing:
            raise PlacementError(
                f"layer {layer}: experts {missing} have no slot; every expert needs one to serve tokens"
            )
        return replicas
