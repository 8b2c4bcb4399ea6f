"""The tokens of one forward step as tensors, built on the host from what the scheduler chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from .config import ModelConfig
from .scheduler import Chunk


@dataclass(frozen=True)
class AttentionGroup:
    """Sequences with equally many new tokens each; they are rows start .. start + sequences * tokens of the batch."""

    start: int
    sequences: int
    tokens: int
    tables: Tensor
    mask: Tensor


@dataclass(frozen=True)
class StepBatch:
    """One rank's tokens of one step; none at all in a dummy step.

    TOKENS, POSITIONS and SLOTS (cache slot that each token's key goes to) are int64 [tokens]; SAMPLED int64 [samples]
    are the rows whose logits are wanted, in the order of the chunks that sample.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    groups: tuple[AttentionGroup, ...]
    sampled: Tensor


def build_batch(
    chunks: Sequence[Chunk], config: ModelConfig, block_size: int, device: torch.device | str = "cpu"
) -> StepBatch:
    """Lay CHUNKS out in their order; the leading ones of one token (decoding) are attended together, others singly."""
    single = [chunk for chunk in chunks if chunk.count == 1]
    grouped = ([single] if single else []) + [[chunk] for chunk in chunks if chunk.count > 1]
    ends = list(accumulate(chunk.count for chunk in chunks))
    return StepBatch(
        tokens=_ints([token for chunk in chunks for token in chunk.tokens], device),
        positions=_ints([position for chunk in chunks for position in chunk.positions], device),
        slots=_ints([slot for chunk in chunks for slot in _cache_slots(chunk, block_size)], device),
        groups=tuple(_groups(grouped, config, block_size, device)),
        sampled=_ints([end - 1 for end, chunk in zip(ends, chunks, strict=True) if chunk.samples], device),
    )


def _cache_slots(chunk: Chunk, block_size: int) -> list[int]:
    blocks = chunk.request.blocks
    return [blocks[position // block_size] * block_size + position % block_size for position in chunk.positions]


def _groups(
    grouped: list[list[Chunk]], config: ModelConfig, block_size: int, device: torch.device | str
) -> list[AttentionGroup]:
    groups, start = [], 0
    for chunks in grouped:
        used = [chunk.request.blocks[: -(-(chunk.start + chunk.count) // block_size)] for chunk in chunks]
        longest = max(len(blocks) for blocks in used)
        tables = torch.tensor([blocks + [0] * (longest - len(blocks)) for blocks in used], device=device)
        mask = _causal_mask(
            chunks, longest * block_size, config.num_attention_heads // config.num_key_value_heads, device
        )
        groups.append(AttentionGroup(start, len(chunks), chunks[0].count, tables, mask))
        start += sum(chunk.count for chunk in chunks)
    return groups


def _causal_mask(chunks: list[Chunk], context: int, group: int, device: torch.device | str) -> Tensor:
    """0 where a key is at or before its query, else -inf: float32 [sequences, 1, group * tokens, context]."""
    positions = torch.tensor([list(chunk.positions) for chunk in chunks], device=device)
    later = torch.arange(context, device=device) > positions[:, :, None]
    mask = torch.zeros(later.shape, device=device).masked_fill_(later, float("-inf"))
    return mask.repeat(1, group, 1)[:, None]


def _ints(values: list[int], device: torch.device | str) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
