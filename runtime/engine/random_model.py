"""Writes a random Qwen3-MoE model of a chosen shape, for load tests: its tokens mean nothing, its work is real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from elasticfsm.errors import ModelError

from .checkpoint import INDEX
from .config import ARCHITECTURE, ModelConfig
from .weights import non_expert_specs


def write_random_model(
    directory: Path | str,
    *,
    layers: int = 4,
    hidden: int = 128,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    experts: int = 16,
    experts_per_token: int = 2,
    expert_width: int = 144,
    vocab: int = 256,
    context: int = 1024,
    tied: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> ModelConfig:
    """Write config.json and one safetensors shard per layer into DIRECTORY (created; must be empty), return the config.

    The same arguments give the same bytes. Memory in use is one layer's. Raises ModelError for an impossible shape or
    a directory that already holds something; nothing is written then.
    """
    directory = Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ModelError(f"{directory} already holds something; give a new or an empty directory")
    fields = {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3_moe",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "num_experts": experts,
        "num_experts_per_tok": experts_per_token,
        "moe_intermediate_size": expert_width,
        "max_position_embeddings": context,
        "norm_topk_prob": True,
        "tie_word_embeddings": tied,
        "rope_theta": 10000.0,
        "dtype": str(dtype).removeprefix("torch."),
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    config = ModelConfig.from_fields(directory, fields)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{directory} cannot be made: {error.strerror}; give another directory") from None
    (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    _write_shards(directory, config, dtype, torch.Generator().manual_seed(seed))
    return config


def _write_shards(directory: Path, config: ModelConfig, dtype: torch.dtype, generator: torch.Generator) -> None:
    shapes = {name: shape for spec in non_expert_specs(config) for name, shape in spec.sources}
    files: dict[str, str] = {}
    total = 0
    for number in range(config.num_hidden_layers + 1):
        file = f"model-{number + 1:05d}-of-{config.num_hidden_layers + 1:05d}.safetensors"
        prefix = f"model.layers.{number}."
        last = number == config.num_hidden_layers
        wanted = {n: s for n, s in shapes.items() if (".layers." not in n if last else n.startswith(prefix))}
        if not last:
            wanted |= _expert_shapes(config, prefix)
        tensors = {name: _random(shape, dtype, generator) for name, shape in wanted.items()}
        save_file(tensors, directory / file, metadata={"format": "pt"})
        files |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    index: dict[str, Any] = {"metadata": {"total_size": total}, "weight_map": files}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _expert_shapes(config: ModelConfig, prefix: str) -> dict[str, tuple[int, ...]]:
    hidden, width = config.hidden_size, config.moe_intermediate_size
    shapes = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    return {
        f"{prefix}mlp.experts.{expert}.{part}.weight": shape
        for expert in range(config.num_experts)
        for part, shape in shapes.items()
    }


def _random(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Norms are one; matrices keep the size of what passes through them, so that no layer drowns the others."""
    if len(shape) == 1:
        return torch.ones(shape, dtype=dtype)
    return torch.randn(shape, generator=generator).mul_(float(shape[1]) ** -0.5).to(dtype)
