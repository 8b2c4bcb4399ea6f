"""`elasticfsm demo`: a real model changes size while it serves; the report says whether every token was right."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import outputs

FAULTS = ("swap-experts", "drop-update")


def demo(
    path: Annotated[str, typer.Option(help="Numbers of engines, in order.")] = "2,4,2",
    model: Annotated[Path | None, typer.Option(help="A Qwen3-MoE directory; default: the psalter model.")] = None,
    transfer: Annotated[
        str, typer.Option(help="How weights move: nixl, p2p, or auto: nixl if all engines can.")
    ] = "auto",
    eplb: Annotated[
        str, typer.Option(help="When experts move: async (beside the steps), sync (between two) or off.")
    ] = ("async"),
    eplb_interval: Annotated[int, typer.Option(help="Steps between two rebalances.", min=1)] = 200,
    eplb_window: Annotated[int, typer.Option(help="Steps whose loads a rebalance looks at.", min=1)] = 200,
    eplb_policy: Annotated[str, typer.Option(help="bounded (least movement) or balanced (DeepSeek's).")] = "bounded",
    eplb_step_bytes: Annotated[
        int, typer.Option(help="Bytes of experts that arrive beside one step; 0: a layer at a time.", min=0)
    ] = 0,
    verify_experts: Annotated[
        bool, typer.Option("--verify-experts", help="Compare all experts with the checkpoint after every change.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Seconds of steady serving at each size.", min=0.5)] = 8.0,
    clients: Annotated[int, typer.Option(help="Clients, each with one request at a time.", min=1)] = 12,
    slots: Annotated[
        int, typer.Option(help="Expert slots per engine; 0: enough at the smallest size, and two.", min=0)
    ] = 0,
    largest: Annotated[int, typer.Option(help="More engines than this are refused.", min=1)] = 8,
    device: Annotated[str, typer.Option(help="Where engines run: cpu, or cuda (bfloat16, NCCL, graphs).")] = "cpu",
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the report here, as JSON.")] = None,
    journal: Annotated[
        str,
        typer.Option(callback=outputs.journals, help="Keep the journals in this directory (else they are removed)."),
    ] = "",
    live: Annotated[bool, typer.Option("--live/--no-live", help="Show the engines while they run.")] = True,
    fault: Annotated[
        str, typer.Option("--break", help=f"For tests of the token check: break the weights ({', '.join(FAULTS)}).")
    ] = "",
) -> None:
    """Serve real prompts while engines join and leave; exit 0 only if no request was lost and every token is right."""
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.demo.report import show
    from elasticfsm.runtime.demo.scenario import Run, Scenario
    from elasticfsm.runtime.models import PSALTER

    if transfer not in ("auto", "nixl", "p2p"):
        raise RequestRefused(f"--transfer {transfer}: expected auto, nixl or p2p")
    if eplb not in ("async", "sync", "off"):
        raise RequestRefused(f"--eplb {eplb}: expected async, sync or off")
    if eplb_policy not in ("bounded", "balanced"):
        raise RequestRefused(f"--eplb-policy {eplb_policy}: expected bounded or balanced")
    if device not in ("cpu", "cuda"):
        raise RequestRefused(f"--device {device}: expected cpu or cuda")
    if fault and fault not in FAULTS:
        raise RequestRefused(f"--break {fault}: expected one of {', '.join(FAULTS)}")
    signal.signal(signal.SIGTERM, _terminate)
    # whoever started this may have blocked them: Ctrl-C must end it all the same
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    console = Console()
    scenario = Scenario(
        path=_sizes(path),
        model=(model or PSALTER).resolve(),
        transfer=transfer,  # type: ignore[arg-type]
        eplb=eplb,  # type: ignore[arg-type]
        eplb_interval=eplb_interval,
        eplb_window=eplb_window,
        eplb_step_bytes=eplb_step_bytes,
        policy=eplb_policy,  # type: ignore[arg-type]
        verify_experts=verify_experts,
        seconds=seconds,
        clients=clients,
        device=device,  # type: ignore[arg-type]
        slots=slots,
        largest=largest,
        journal=journal,
        faults=(fault,) if fault else (),
    )
    report = Run(scenario, console, live).execute()
    show(report, console)
    if json is not None:
        import msgspec

        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    sys.exit(0 if report.ok else 1)


def _sizes(text: str) -> tuple[int, ...]:
    from elasticfsm.errors import RequestRefused

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RequestRefused(f"--path {text}: expected numbers of engines with commas between, such as 2,4,2") from None


def _terminate(number: int, frame: object) -> None:
    """SIGTERM unwinds like an exception, so that everything is ended and removed."""
    sys.exit(128 + number)
