"""The paged key-value cache: two tensors cut into blocks, and the list of blocks that are free."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .config import ModelConfig

BLOCK_SIZE = 16


@dataclass(frozen=True)
class KVCache:
    """Keys and values of all layers, each [layers, blocks, block_size, kv_heads, head_dim]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        blocks: int,
        block_size: int = BLOCK_SIZE,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> KVCache:
        """A cache of BLOCKS blocks; the number is agreed between the ranks beforehand."""
        shape = (config.num_hidden_layers, blocks, block_size, config.num_key_value_heads, config.head_dim)
        # Zeros, not empty: a masked entry still takes part in 0 * value, which a stray NaN would survive.
        return cls(torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.keys.shape[1]

    @property
    def block_size(self) -> int:
        """Tokens a block holds."""
        return self.keys.shape[2]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store KEYS, VALUES [tokens, kv_heads, head_dim] at SLOTS int64 [tokens] = block * block_size + offset."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)


def block_bytes(config: ModelConfig, block_size: int = BLOCK_SIZE, dtype: torch.dtype = torch.float32) -> int:
    """Bytes that one block takes over all layers, keys and values together: what to divide free memory by."""
    return 2 * config.num_hidden_layers * block_size * config.key_value_size * dtype.itemsize


class BlockPool:
    """Which blocks of a cache are free; the block lists of running requests are the rest."""

    def __init__(self, blocks: int, block_size: int = BLOCK_SIZE) -> None:
        self.total = blocks
        self.block_size = block_size
        self._free = list(range(blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        """Number of free blocks."""
        return len(self._free)

    def needed(self, tokens: int) -> int:
        """Blocks that hold TOKENS tokens."""
        return -(-tokens // self.block_size)

    def grow(self, table: list[int], tokens: int) -> bool:
        """Extend TABLE in place until it holds TOKENS tokens; False, nothing changed, when too few blocks are free."""
        missing = self.needed(tokens) - len(table)
        if missing > len(self._free):
            return False
        table.extend(self._free.pop() for _ in range(missing))
        return True

    def release(self, table: list[int]) -> None:
        """Give all blocks of TABLE back and empty it."""
        self._free.extend(reversed(table))
        table.clear()
