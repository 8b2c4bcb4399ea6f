"""Which weights a model has besides its experts, and where each lies in one flat buffer that peers read at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .config import ModelConfig

# Views start at multiples of 64 bytes in float32, so that a peer's one-sided reads and vector loads are aligned.
ALIGNMENT = 16


@dataclass(frozen=True)
class WeightSpec:
    """One weight: its name, its shape and the checkpoint tensors it is stacked from (along dimension 0)."""

    name: str
    shape: tuple[int, ...]
    sources: tuple[tuple[str, tuple[int, ...]], ...]


def non_expert_specs(config: ModelConfig) -> list[WeightSpec]:
    """All weights that every rank holds, in one order that depends on the config alone."""
    hidden, vocab = config.hidden_size, config.vocab_size
    specs = [_plain("model.embed_tokens.weight", vocab, hidden)]
    for layer in range(config.num_hidden_layers):
        specs += _layer_specs(config, f"model.layers.{layer}.")
    specs.append(_plain("model.norm.weight", hidden))
    if not config.tie_word_embeddings:
        specs.append(_plain("lm_head.weight", vocab, hidden))
    return specs


def _layer_specs(config: ModelConfig, prefix: str) -> list[WeightSpec]:
    hidden, queries, keys = config.hidden_size, config.query_size, config.key_value_size
    attention = prefix + "self_attn."
    sources = tuple(
        (f"{attention}{part}_proj.weight", (rows, hidden)) for part, rows in (("q", queries), ("k", keys), ("v", keys))
    )
    return [
        _plain(prefix + "input_layernorm.weight", hidden),
        WeightSpec(attention + "qkv_proj.weight", (queries + 2 * keys, hidden), sources),
        _plain(attention + "q_norm.weight", config.head_dim),
        _plain(attention + "k_norm.weight", config.head_dim),
        _plain(attention + "o_proj.weight", hidden, queries),
        _plain(prefix + "post_attention_layernorm.weight", hidden),
        _plain(prefix + "mlp.gate.weight", config.num_experts, hidden),
    ]


def _plain(name: str, *shape: int) -> WeightSpec:
    return WeightSpec(name, shape, ((name, shape),))


def allocate_flat(
    specs: list[WeightSpec], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, dict[str, Tensor]]:
    """One uninitialised buffer for all specs, and a named view of it for each; alike on all ranks of one config."""
    offsets, end = [], 0
    for spec in specs:
        offsets.append(end)
        end += -(-math.prod(spec.shape) // ALIGNMENT) * ALIGNMENT
    storage = torch.empty(end, dtype=dtype, device=device)
    views = {
        spec.name: storage[offset : offset + math.prod(spec.shape)].view(spec.shape)
        for spec, offset in zip(specs, offsets, strict=True)
    }
    return storage, views
