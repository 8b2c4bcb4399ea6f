"""Options that several commands declare, each with the one help text that it has, and words of which one is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elasticfsm.errors import RequestRefused

Model = Annotated[Path | None, typer.Option(help="A Qwen3-MoE directory; default: the psalter model.")]
Transfer = Annotated[str, typer.Option(help="How weights move: nixl, p2p, or auto: nixl if all engines can.")]
Eplb = Annotated[str, typer.Option(help="When experts move: async (beside the steps), sync (between two) or off.")]
Interval = Annotated[int, typer.Option(help="Steps between two rebalances.", min=1)]
Window = Annotated[int, typer.Option(help="Steps whose loads a rebalance looks at.", min=1)]
Policy = Annotated[str, typer.Option(help="bounded (least movement) or balanced (DeepSeek's).")]
StepBytes = Annotated[
    int, typer.Option(help="Bytes of experts that arrive beside one step; 0: a layer at a time.", min=0)
]
Largest = Annotated[int, typer.Option(help="More engines than this are refused.", min=1)]
Device = Annotated[str, typer.Option(help="Where engines run: cpu, or cuda (bfloat16, NCCL, graphs).")]
Clients = Annotated[int, typer.Option(help="Clients, each with one request at a time.", min=1)]

TRANSFERS, PACES, DEVICES = ("auto", "nixl", "p2p"), ("async", "sync", "off"), ("cpu", "cuda")
POLICIES = ("bounded", "balanced")


def one_of(option: str, found: str, known: tuple[str, ...]) -> Any:
    """The word, or RequestRefused when it is none of those that are known; what takes it names them as a literal."""
    if found not in known:
        raise RequestRefused(f"{option} {found}: expected {', '.join(known[:-1])} or {known[-1]}")
    return found
