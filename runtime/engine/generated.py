"""Weights that are drawn instead of read, for load tests of real shapes: config.json alone is the model.

A config with the field `elasticfsm_random_weights` (a seed) has no files of weights. Every engine draws the same
numbers for the same tensor, on its own device.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from .checkpoint import Checkpoint
from .config import ModelConfig
from .weights import WeightSpec

FIELD = "elasticfsm_random_weights"


class Source(Protocol):
    """Where the weights of a model come from."""

    def read_into(self, spec: WeightSpec, target: Tensor) -> None:
        """Fill TARGET with one non-expert weight."""
        ...

    def read_expert_into(self, layer: int, expert: int, gate_up: Tensor, down: Tensor) -> None:
        """Fill GATE_UP and DOWN with one logical expert."""
        ...


class GeneratedCheckpoint:
    """A Source of normal numbers whose size keeps that of what passes through; norms are one."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self.config, self._seed = config, seed

    def read_into(self, spec: WeightSpec, target: Tensor) -> None:
        """See Source."""
        if target.ndim == 1:
            target.fill_(1.0)
        else:
            self._draw(spec.name, target)

    def read_expert_into(self, layer: int, expert: int, gate_up: Tensor, down: Tensor) -> None:
        """See Source."""
        self._draw(f"{layer}/{expert}/gate_up", gate_up)
        self._draw(f"{layer}/{expert}/down", down)

    def _draw(self, name: str, target: Tensor) -> None:
        number = self._seed << 32 | zlib.crc32(name.encode())
        generator = torch.Generator(target.device).manual_seed(number)
        target.normal_(0.0, float(target.shape[-1]) ** -0.5, generator=generator)


def random_seed(directory: Path | str) -> int | None:
    """The seed of a model without files of weights, None for all others."""
    path = Path(directory) / "config.json"
    seed = json.loads(path.read_bytes()).get(FIELD) if path.is_file() else None
    return seed if isinstance(seed, int) else None


def open_checkpoint(directory: Path | str, config: ModelConfig) -> Source:
    """The weights of a model directory; raises ModelError when files are missing or broken."""
    seed = random_seed(directory)
    return Checkpoint(directory, config) if seed is None else GeneratedCheckpoint(config, seed)
