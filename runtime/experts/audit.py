"""Compares what lies in the expert slots with the checkpoint: for tests and benches, after every change of the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from elasticfsm.journal import Journal

from ..engine.config import ModelConfig
from .placement import EMPTY
from .rebalance import row_checksum
from .state import ExpertState

MOST = 8  # wrong slots named in one event


class Source(Protocol):
    """Where experts come from; `engine.checkpoint.Checkpoint` is one."""

    def read_expert_into(self, layer: int, expert: int, gate_up: Tensor, down: Tensor) -> None:
        """Fill the tensors of one logical expert."""
        ...


def sums_of(source: Source, layers: int, experts: int, gate_up: Tensor, down: Tensor) -> tuple[int, ...]:
    """Return the checksum of every expert in a checkpoint, layer by layer; the tensors are scratch memory."""
    found = []
    for layer in range(layers):
        for expert in range(experts):
            source.read_expert_into(layer, expert, gate_up, down)
            found.append(row_checksum([gate_up, down]))
    return tuple(found)


def sums_of_model(source: Source, config: ModelConfig) -> tuple[int, ...]:
    """Return the checksum of every expert of a whole model."""
    gate_up, down = scratch(config.hidden_size, config.moe_intermediate_size)
    return sums_of(source, config.num_hidden_layers, config.num_experts, gate_up, down)


class Audit:
    """The `ended` hook of an ExpertState: every occupied slot of this rank is read and compared with `sums`.

    Main loop, between two steps; takes as long as summing all slots, so it is for tests. Without sums it does nothing.
    """

    def __init__(self, sums: Sequence[int], journal: Journal) -> None:
        self._sums = sums
        self._journal = journal

    def __call__(self, state: ExpertState, why: str) -> None:
        """Compare; differences are counted and written to the journal."""
        generation = state.generation("active")
        if not self._sums or generation is None or state.placement is None:
            return
        wrong, checked = [], 0
        for layer in range(state.layers):
            first = generation.rank * state.slots_per_rank
            for slot, expert in enumerate(state.placement.row(layer)[first : first + state.slots_per_rank].tolist()):
                if expert == EMPTY:
                    continue
                checked += 1
                if row_checksum(state.memory.slot_tensors(layer, slot)) != self._sums[layer * state.experts + expert]:
                    wrong.append([layer, slot, expert])
        state.tally.checked += checked
        state.tally.wrong += len(wrong)
        self._journal.put("experts.audit", "rebalance.main", why=why, checked=checked, wrong=wrong[:MOST])


def scratch(hidden: int, width: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return memory for one expert as engines hold it: gate and up [2 * width, hidden], down [hidden, width]."""
    return torch.empty(2 * width, hidden, dtype=dtype), torch.empty(hidden, width, dtype=dtype)
