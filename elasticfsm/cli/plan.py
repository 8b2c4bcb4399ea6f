"""`elasticfsm plan`: what a change of size would do, without doing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import outputs

if TYPE_CHECKING:
    from elasticfsm.runtime.engine.config import ModelConfig


def plan(
    before: Annotated[int, typer.Option("--from", help="Engines now.")],
    after: Annotated[int, typer.Option("--to", help="Engines then.")],
    model: Annotated[Path | None, typer.Option(help="A Qwen3-MoE directory; default: the psalter model.")] = None,
    remove: Annotated[str, typer.Option(help="Ranks that leave, such as 1,3; default: the best choice.")] = "",
    slots: Annotated[int, typer.Option(help="Expert slots per engine; 0: as the demo chooses.", min=0)] = 0,
    loads: Annotated[Path | None, typer.Option(help="JSON, a list of counts by expert for each layer.")] = None,
    transfer: Annotated[str, typer.Option(help="How weights move: nixl or p2p.")] = "nixl",
    bandwidth: Annotated[float, typer.Option(help="GB/s of one engine; 0: measured by copying memory.", min=0)] = 0.0,
    step_ms: Annotated[float, typer.Option(help="A forward step, in ms.", min=0.001)] = 10.0,
    start_s: Annotated[float, typer.Option(help="Seconds until a new engine can read weights.", min=0)] = 4.0,
    itemsize: Annotated[int, typer.Option(help="Bytes of one weight.", min=1, max=8)] = 4,
    kv_blocks: Annotated[int, typer.Option(help="Blocks of the KV cache per engine.", min=1)] = 512,
    largest: Annotated[int, typer.Option(help="More engines than this are refused.", min=1)] = 8,
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write everything here, as JSON.")] = None,
) -> None:
    """Print steps, bytes, pause, duration and placement of a change of size; nothing is started."""
    import msgspec
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.deployment import default_slots
    from elasticfsm.runtime.engine.config import ModelConfig
    from elasticfsm.runtime.experts.placement import refuse_size
    from elasticfsm.runtime.forecast import Assumptions, predict
    from elasticfsm.runtime.forecast.show import show
    from elasticfsm.runtime.models import PSALTER

    if transfer not in ("nixl", "p2p"):
        raise RequestRefused(f"--transfer {transfer}: expected nixl or p2p")
    config = ModelConfig.read(model or PSALTER)
    many = slots or default_slots(config.num_experts, before)
    for size in (before, after):
        refuse_size(size, config.num_experts, many, largest)
    prediction = predict(
        config,
        before,
        after,
        many,
        leaving=_ranks(remove),
        loads=_loads(loads, config) if loads is not None else None,
        assumptions=Assumptions(
            bandwidth=bandwidth * 1e9,
            step_seconds=step_ms / 1e3,
            start_seconds=start_s,
            itemsize=itemsize,
            kv_blocks=kv_blocks,
            transfer=transfer,
        ),
    )
    show(prediction, Console())
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(prediction), indent=2) + b"\n")


def _ranks(text: str) -> list[int]:
    from elasticfsm.errors import RequestRefused

    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise RequestRefused(f"--remove {text}: expected ranks with commas between, such as 1,3") from None


def _loads(path: Path, config: ModelConfig) -> Any:
    import msgspec
    import numpy as np

    from elasticfsm.errors import RequestRefused

    shape = (config.num_hidden_layers, config.num_experts)
    try:
        counts = np.array(msgspec.json.decode(path.read_bytes(), type=list[list[int]]), dtype=np.int64)
    except (OSError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise RequestRefused(f"--loads {path}: {error}; expected {shape[0]} lists of {shape[1]} counts") from None
    if counts.shape != shape or (counts < 0).any():
        raise RequestRefused(f"--loads {path} has shape {counts.shape}; expected counts of shape {shape}")
    return counts
