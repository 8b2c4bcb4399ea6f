"""Lazy reading of a safetensors checkpoint: headers are checked when it is opened, weights are read one at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elasticfsm.errors import ModelError

from .config import ModelConfig
from .weights import WeightSpec, non_expert_specs

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DTYPES = {"F16", "BF16", "F32"}


class Checkpoint:
    """The weights of one model directory, in one file or in shards with an index.

    Experts may be stored each under its own names (`mlp.experts.7.up_proj.weight`) or stacked over all experts of a
    layer (`mlp.experts.gate_up_proj` [experts, 2 * width, hidden], `mlp.experts.down_proj` [experts, hidden, width]).
    """

    def __init__(self, directory: Path | str, config: ModelConfig | None = None) -> None:
        """Open all files and compare every needed tensor's name, shape and dtype with the config.

        Raises ModelError that names the file when one is missing, truncated or corrupt, or lacks a tensor.
        """
        self.directory = Path(directory)
        self.config = config or ModelConfig.read(self.directory)
        self._handles: dict[str, Any] = {}
        self._file_of = self._index()
        self._stacked = "model.layers.0.mlp.experts.gate_up_proj" in self._file_of
        self._check()

    def read_into(self, spec: WeightSpec, target: Tensor) -> None:
        """Fill TARGET (spec.shape, any float dtype and device) from the tensors it is stacked from."""
        row = 0
        for name, shape in spec.sources:
            target[row : row + shape[0]].copy_(self._read(name))
            row += shape[0]

    def read_expert_into(self, layer: int, expert: int, gate_up: Tensor, down: Tensor) -> None:
        """Fill GATE_UP [2 * width, hidden] (gate above up) and DOWN [hidden, width] with one logical expert."""
        prefix = f"model.layers.{layer}.mlp.experts."
        if self._stacked:
            gate_up.copy_(self._read(prefix + "gate_up_proj", expert))
            down.copy_(self._read(prefix + "down_proj", expert))
            return
        gate, up = gate_up.chunk(2)
        gate.copy_(self._read(f"{prefix}{expert}.gate_proj.weight"))
        up.copy_(self._read(f"{prefix}{expert}.up_proj.weight"))
        down.copy_(self._read(f"{prefix}{expert}.down_proj.weight"))

    def _index(self) -> dict[str, str]:
        """Tensor name -> file name."""
        index = self.directory / INDEX
        if index.is_file():
            return _read_index(index)
        if (self.directory / SINGLE).is_file():
            return dict.fromkeys(self._open(SINGLE).keys(), SINGLE)
        raise ModelError(f"{self.directory} holds neither {SINGLE} nor {INDEX}; expected a safetensors checkpoint")

    def _open(self, file: str) -> Any:
        if file not in self._handles:
            path = self.directory / file
            if not path.is_file():
                raise ModelError(f"{path} does not exist but {INDEX} names it; copy the missing shard")
            try:
                self._handles[file] = safe_open(str(path), framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is truncated or corrupt ({error}); copy it again") from error
        return self._handles[file]

    def _check(self) -> None:
        config = self.config
        for spec in non_expert_specs(config):
            for name, shape in spec.sources:
                self._check_tensor(name, shape)
        for layer in range(config.num_hidden_layers):
            for name, shape in self._expert_tensors(f"model.layers.{layer}.mlp.experts."):
                self._check_tensor(name, shape)

    def _expert_tensors(self, prefix: str) -> list[tuple[str, tuple[int, ...]]]:
        experts, hidden, width = self.config.num_experts, self.config.hidden_size, self.config.moe_intermediate_size
        if self._stacked:
            return [
                (prefix + "gate_up_proj", (experts, 2 * width, hidden)),
                (prefix + "down_proj", (experts, hidden, width)),
            ]
        shapes = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
        return [(f"{prefix}{e}.{part}.weight", shape) for e in range(experts) for part, shape in shapes.items()]

    def _check_tensor(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._file_of:
            raise ModelError(
                f"{self.directory} has no tensor {name}, expected {list(shape)}; the checkpoint is incomplete"
            )
        path = self.directory / self._file_of[name]
        try:
            header = self._open(path.name).get_slice(name)
        except SafetensorError as error:
            raise ModelError(f"{path} does not hold {name}, which {INDEX} places there ({error})") from error
        found = tuple(header.get_shape())
        if found != shape:
            raise ModelError(f"{path}: {name} has shape {list(found)}, expected {list(shape)} from config.json")
        if header.get_dtype() not in DTYPES:
            raise ModelError(f"{path}: {name} is {header.get_dtype()}, expected one of {', '.join(sorted(DTYPES))}")

    def _read(self, name: str, row: int | None = None) -> Tensor:
        file = self._file_of[name]
        try:
            handle = self._open(file)
            tensor = handle.get_tensor(name) if row is None else handle.get_slice(name)[row]
        except SafetensorError as error:
            raise ModelError(f"{self.directory / file}: cannot read {name} ({error}); copy the file again") from error
        return torch.as_tensor(tensor)


def _read_index(path: Path) -> dict[str, str]:
    try:
        files = json.loads(path.read_bytes())["weight_map"]
        return {str(name): str(file) for name, file in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is no safetensors index, expected an object with a weight_map ({error!r})") from error
