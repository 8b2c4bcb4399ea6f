"""Faults that a test of the token check puts into an engine on purpose: wrong weights that nothing else notices."""

from __future__ import annotations

from collections.abc import Collection

from ..experts.rebalance import Experts
from ..experts.state import Staged
from .model import Model

FAULTS = ("swap-experts", "drop-update")


def swap_experts(model: Model, layer: int = 1, slots: tuple[int, int] = (0, 1)) -> None:
    """Swap the weights of two expert slots of one layer."""
    first, second = (model.expert_slot(layer, slot) for slot in slots)
    for one, other in zip(first, second, strict=True):
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)


class DroppingExperts(Experts):
    """Experts of which the first row of every layer that a rebalance brings is never stored."""

    def store(self, layer: int, row: Staged) -> None:
        """Store all rows but the first of each layer."""
        staged = self._state.staged
        if staged and row is not staged[0]:
            super().store(layer, row)


def experts_with(faults: Collection[str], engine: str) -> type[Experts]:
    """The experts adapter of an engine under these faults: updates are dropped on engine e1 only."""
    return DroppingExperts if "drop-update" in faults and engine == "e1" else Experts
