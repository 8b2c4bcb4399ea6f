"""`elasticfsm model new DIR`: a random model of a chosen shape, for load tests."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Dtype(StrEnum):
    """In which type the weights are stored."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def model_new(
    directory: Annotated[Path, typer.Argument(help="Where to write it: a new or an empty directory.")],
    layers: Annotated[int, typer.Option(min=1)] = 4,
    hidden: Annotated[int, typer.Option(min=1, help="Width of the residual stream.")] = 128,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    kv_heads: Annotated[int, typer.Option(min=1, help="Heads of keys and values; divides --heads.")] = 2,
    head_dim: Annotated[int, typer.Option(min=2)] = 32,
    experts: Annotated[int, typer.Option(min=1, help="Logical experts per layer.")] = 16,
    experts_per_token: Annotated[int, typer.Option(min=1)] = 2,
    expert_width: Annotated[int, typer.Option(min=1, help="Inner width of one expert.")] = 144,
    vocab: Annotated[int, typer.Option(min=2, help="256 takes bytes, as the demo's prompts are.")] = 256,
    context: Annotated[int, typer.Option(min=2, help="Longest prompt and continuation, in tokens.")] = 1024,
    tied: Annotated[bool, typer.Option("--tied/--untied", help="Share input and output embeddings.")] = False,
    dtype: Annotated[Dtype, typer.Option(help="Stored type of the weights.")] = Dtype.float32,
    seed: Annotated[int, typer.Option(help="The same seed and shape give the same bytes.")] = 0,
) -> None:
    """Write a random Qwen3-MoE model of this shape: its tokens mean nothing, its work is real."""
    import torch

    from elasticfsm.runtime.engine.random_model import write_random_model

    config = write_random_model(
        directory,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        experts=experts,
        experts_per_token=experts_per_token,
        expert_width=expert_width,
        vocab=vocab,
        context=context,
        tied=tied,
        dtype=getattr(torch, dtype.value),
        seed=seed,
    )
    size = sum(path.stat().st_size for path in directory.iterdir())
    typer.echo(
        f"{directory}: {config.num_hidden_layers} layers, {config.num_experts} experts, {size / 1e6:.1f} MB; "
        f"try `elasticfsm demo --model {directory}`"
    )
