"""A step of fixed shapes: what a CUDA graph captures. A row is one token, of a prompt or decoded; the rest is padding.

A prompt's tokens are rows that name the same blocks: keys of all rows are stored before any row looks at them, and each
looks only as far as its own position. So a step with prompts has the shapes of one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from elasticfsm.errors import ModelError

from .exchange import ExpertExchange
from .grouped import run_fixed_experts
from .kv_cache import BLOCK_SIZE, KVCache
from .layers import paged_attention
from .model import LayerWeights, Model
from .moe import route, unpack
from .routing import ExpertRouting
from .scheduler import Chunk


class PaddedInputs:
    """The inputs of a step at addresses that never change, filled by one copy from pinned memory.

    int64: `tokens`, `positions`, `slots` [rows], `tables` [rows, blocks], `count` [1]. Padding is written to `scratch`,
    a block of the cache that no request owns.
    """

    def __init__(self, rows: int, blocks: int, scratch: int, device: torch.device) -> None:
        self.rows, self.blocks, self.scratch = rows, blocks, scratch
        size = rows * (3 + blocks) + 1
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._device = torch.zeros(size, dtype=torch.int64, device=device)
        self._numbers = self._host.numpy()
        self.tokens, self.positions, self.slots, tables, self.count = self._cut(self._device)
        self.tables = tables.view(rows, blocks)
        self.fill(())

    def fits(self, chunks: Sequence[Chunk]) -> bool:
        """Whether there is a row for every token, and the table's rows can name all blocks that it sees."""
        tokens = sum(chunk.count for chunk in chunks)
        return tokens <= self.rows and all(chunk.start + chunk.count <= self.blocks * BLOCK_SIZE for chunk in chunks)

    def fill(self, chunks: Sequence[Chunk]) -> list[int]:
        """Lay the chunks out, row by row, and return the rows that are sampled.

        The copy is queued on the current stream. The step before has ended.
        """
        tokens, positions, slots, tables, count = self._cut(self._numbers)
        tokens[:], positions[:], tables[:] = 0, 0, self.scratch
        slots[:] = self.scratch * BLOCK_SIZE
        tables = tables.reshape(self.rows, self.blocks)
        row, sampled = 0, []
        for chunk in chunks:
            rows = slice(row, row + chunk.count)
            blocks = np.array(chunk.request.blocks[: (chunk.start + chunk.count - 1) // BLOCK_SIZE + 1])
            places = np.arange(chunk.start, chunk.start + chunk.count)
            tokens[rows], positions[rows] = chunk.tokens, places
            slots[rows] = blocks[places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE
            tables[rows, : len(blocks)] = blocks
            row += chunk.count
            if chunk.samples:
                sampled.append(row - 1)
        count[0] = row
        self._device.copy_(self._host, non_blocking=True)
        return sampled

    def _cut(self, flat: Any) -> Any:
        rows = self.rows
        ends = [rows, 2 * rows, 3 * rows, 3 * rows + rows * self.blocks]
        return (
            flat[: ends[0]],
            flat[ends[0] : ends[1]],
            flat[ends[1] : ends[2]],
            flat[ends[2] : ends[3]],
            flat[ends[3] :],
        )


class PaddedOutputs:
    """`tokens` int64 [rows], the best token of each row; `load` int64 [layers, experts] grows step by step."""

    def __init__(self, rows: int, layers: int, experts: int, device: torch.device) -> None:
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.load = torch.zeros(layers, experts, dtype=torch.int64, device=device)


@torch.no_grad()
def padded_step(
    model: Model,
    inputs: PaddedInputs,
    outputs: PaddedOutputs,
    cache: KVCache,
    routing: ExpertRouting,
    exchange: ExpertExchange,
) -> None:
    """One step over INPUTS into OUTPUTS; all ranks of EXCHANGE enter it. Its collectives are those of Model.forward.

    Nothing in it looks at the device from the host.
    """
    config = model.config
    hidden = model.weight("model.embed_tokens.weight")[inputs.tokens]
    rotary = model.rotary(inputs.positions)
    real = torch.arange(inputs.rows, device=hidden.device) < inputs.count
    context = torch.arange(inputs.blocks * cache.block_size, device=hidden.device)
    group = config.num_attention_heads // config.num_key_value_heads
    seen = (context <= inputs.positions[:, None])[:, None, None, :].expand(-1, 1, group, -1)
    for number, layer in enumerate(model.layers):
        hidden = hidden + _attention(model, number, layer, hidden, inputs, cache, rotary, seen)
        normed = model.norm(hidden, layer.expert_norm)
        weights, experts = route(normed, layer.router, config.num_experts_per_tok, config.norm_topk_prob)
        chosen = real[:, None].expand_as(experts).flatten().long()
        outputs.load[number].scatter_add_(0, experts.flatten(), chosen)
        experts = torch.where(real[:, None], experts, -1)
        packed = torch.cat([normed, weights.to(normed.dtype), experts.to(normed.dtype)], dim=1)
        rows, weights, experts = unpack(exchange.dispatch(packed), config.hidden_size)
        local = routing.local_slots(number, experts, exchange.rank)
        hidden = hidden + exchange.combine(run_fixed_experts(rows, weights, local, layer.gate_up, layer.down))
    outputs.tokens.copy_(model.logits(hidden).argmax(dim=-1))


def _attention(
    model: Model,
    number: int,
    layer: LayerWeights,
    hidden: Tensor,
    inputs: PaddedInputs,
    cache: KVCache,
    rotary: tuple[Tensor, Tensor],
    seen: Tensor,
) -> Tensor:
    query, key, value = model.project(layer, hidden, rotary)
    cache.write(number, inputs.slots, key, value)
    rows = paged_attention(query[:, None], cache.keys[number], cache.values[number], inputs.tables, seen)
    return F.linear(rows.flatten(1), layer.output)


def refuse_inexact(experts: int, dtype: torch.dtype) -> None:
    """Raise ModelError when expert ids, which travel as numbers of `dtype`, would not be exact."""
    exact = {torch.bfloat16: 256, torch.float16: 2048}.get(dtype, 1 << 24)
    if experts > exact:
        raise ModelError(f"{experts} experts cannot be told apart in {dtype}; expected at most {exact}, or float32")
