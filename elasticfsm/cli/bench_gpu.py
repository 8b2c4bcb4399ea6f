"""The commands of `elasticfsm bench` that need a GPU; each is one section of tests/gpu/run.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import outputs

Out = Annotated[Path, typer.Option(callback=outputs.file, help="Write the figures here, as JSON.")]
Seconds = Annotated[float, typer.Option(help="Sections that do not fit are skipped.", min=10.0)]
Gpus = Annotated[int, typer.Option(help="1: several engines on one GPU. 2: one engine on each.", min=1, max=2)]


def add_to(app: typer.Typer) -> None:
    """Add the commands; what they import is imported when one is used."""

    @app.command("gpu")
    def gpu(gpus: Gpus = 1, out: Out = Path("gpu.json"), seconds: Seconds = 520.0, only: str = "") -> None:
        """Everything that needs GPUs, in one table; exit 1 if a bar is missed."""
        _run(gpus, out, seconds, only)

    @app.command("switch")
    def switch(gpus: Gpus = 1, out: Out = Path("switch.json")) -> None:
        """The pause of a switch prepared beside serving, against tear-down and recapture (GPU)."""
        _run(gpus, out, 200.0, "switch2,switch4")

    @app.command("transfer-gpu")
    def transfer(gpus: Gpus = 1, out: Out = Path("transfer.json")) -> None:
        """NIXL through our interface and by hand, NCCL and a plain copy, at real expert sizes (GPU)."""
        _run(gpus, out, 120.0, "copy_gbs,transfer")

    @app.command("eplb-gpu")
    def eplb(out: Out = Path("eplb.json")) -> None:
        """Step times with experts on the move, against none moving (GPU)."""
        _run(1, out, 150.0, "eplb")

    @app.command("throughput")
    def throughput(out: Out = Path("throughput.json")) -> None:
        """A model of the shape of Qwen3-30B-A3B on one GPU, on two, and on one again."""
        _run(2, out, 300.0, "copy_gbs,throughput")


def _run(gpus: int, out: Path, seconds: float, only: str) -> None:
    from elasticfsm.runtime.bench.gpu.suite import run

    sys.exit(run({1: "one", 2: "two"}[gpus], out, seconds, only))
