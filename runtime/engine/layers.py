"""The dense parts of a decoder layer as plain functions: rotary embedding and attention over a paged cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .config import ModelConfig


def rotary_table(config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines for every position, float32 [max_position_embeddings, 1, head_dim] each."""
    dims = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device)
    frequencies = 1.0 / (config.rope_theta ** (dims / config.head_dim))
    positions = torch.arange(config.max_position_embeddings, dtype=torch.float32, device=device)
    angles = torch.outer(positions, frequencies).repeat(1, 2)[:, None, :]
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of HEADS [tokens, heads, head_dim] by tables [tokens, 1, head_dim]; halves are paired."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cosines + torch.cat((-second, first), dim=-1) * sines


def paged_attention(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, mask: Tensor) -> Tensor:
    """Attention of some sequences' new tokens over their own cache blocks.

    QUERY [sequences, tokens, heads, head_dim]; KEYS, VALUES: one layer of the cache [blocks, block_size, kv_heads,
    head_dim]; TABLES int64 [sequences, blocks of the longest]; MASK: 0 or -inf, or bool (true: seen), [sequences, 1,
    group * tokens, context], group = heads / kv_heads. Returns the shape of QUERY. Query heads that share a key head
    are folded into the token dimension, so that keys are never copied per query head.
    """
    sequences, tokens, heads, dim = query.shape
    kv_heads = keys.shape[2]
    folded = (
        query.view(sequences, tokens, kv_heads, -1, dim).permute(0, 2, 3, 1, 4).reshape(sequences, kv_heads, -1, dim)
    )
    context_keys = keys[tables].flatten(1, 2).transpose(1, 2)
    context_values = values[tables].flatten(1, 2).transpose(1, 2)
    mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    out = F.scaled_dot_product_attention(folded, context_keys, context_values, attn_mask=mask)
    unfolded = out.view(sequences, kv_heads, heads // kv_heads, tokens, dim).permute(0, 3, 1, 2, 4)
    return unfolded.reshape(sequences, tokens, heads, dim)
