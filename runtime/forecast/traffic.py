"""Bytes of a change of size, per rank and path: who reads how much from whom."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec
import numpy as np

from ..engine.config import ModelConfig
from ..engine.weights import non_expert_specs
from ..experts.placement import Placement
from ..experts.plan import moves


class RankBytes(msgspec.Struct, kw_only=True):
    """Bytes of one rank: what every engine holds alike (`weights`), and expert rows over the network."""

    rank: int
    role: str
    weights_received: int = 0
    weights_sent: int = 0
    experts_received: int = 0
    experts_sent: int = 0


def non_expert_bytes(config: ModelConfig, itemsize: int) -> int:
    """Return the bytes that a new engine reads before it serves: all weights but the experts."""
    return itemsize * sum(prod(spec.shape) for spec in non_expert_specs(config))


def expert_bytes(config: ModelConfig, itemsize: int) -> int:
    """Return the bytes of one expert of one layer: gate, up and down projection."""
    return itemsize * 3 * config.hidden_size * config.moe_intermediate_size


def weights_traffic(ranks: Sequence[RankBytes], total: int, transfer: str) -> None:
    """Enter the reads of the new ranks: by nixl every source gives an equal part, by p2p one source gives all."""
    sources = [rank for rank in ranks if rank.role != "new"]
    for number, reader in enumerate(rank for rank in ranks if rank.role == "new"):
        reader.weights_received += total
        if transfer == "p2p":
            sources[number % len(sources)].weights_sent += total
            continue
        for at, source in enumerate(sources):
            source.weights_sent += total * (at + 1) // len(sources) - total * at // len(sources)


def experts_traffic(ranks: Sequence[RankBytes], current: Placement, target: Placement, row: int) -> int:
    """Enter the rows that cross ranks, `row` bytes each; return in how many layers something moves."""
    changed = np.flatnonzero((current.physical_to_logical != target.physical_to_logical).any(axis=1))
    for layer in changed:
        for move in moves(int(layer), current, target):
            source, destination = current.rank_of(move.source), current.rank_of(move.destination)
            if source != destination:
                ranks[source].experts_sent += row
                ranks[destination].experts_received += row
    return len(changed)
