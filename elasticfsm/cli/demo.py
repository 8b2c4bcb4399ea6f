"""`elasticfsm demo`: a real model changes size while it serves; the report says whether every token was right."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticfsm.errors import RequestRefused

from . import outputs
from .options import (
    DEVICES,
    PACES,
    POLICIES,
    TRANSFERS,
    Clients,
    Device,
    Eplb,
    Interval,
    Largest,
    Model,
    Policy,
    StepBytes,
    Transfer,
    Window,
    one_of,
)

FAULTS = ("swap-experts", "drop-update")


Verify = Annotated[
    bool, typer.Option("--verify-experts", help="Compare all experts with the checkpoint after every change.")
]
Seconds = Annotated[float, typer.Option(help="Seconds of steady serving at each size.", min=0.5)]
Slots = Annotated[int, typer.Option(help="Expert slots per engine; 0: enough at the smallest size, and two.", min=0)]
Json = Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the report here, as JSON.")]
Journal = Annotated[
    str, typer.Option(callback=outputs.journals, help="Keep the journals in this directory (else they are removed).")
]
Live = Annotated[bool, typer.Option("--live/--no-live", help="Show the engines while they run.")]
Fault = Annotated[
    str, typer.Option("--break", help=f"For tests of the token check: break the weights ({', '.join(FAULTS)}).")
]


def demo(
    path: Annotated[str, typer.Option(help="Numbers of engines, in order.")] = "2,4,2",
    model: Model = None,
    transfer: Transfer = "auto",
    eplb: Eplb = "async",
    eplb_interval: Interval = 200,
    eplb_window: Window = 200,
    eplb_policy: Policy = "bounded",
    eplb_step_bytes: StepBytes = 0,
    verify_experts: Verify = False,
    seconds: Seconds = 8.0,
    clients: Clients = 12,
    slots: Slots = 0,
    largest: Largest = 8,
    device: Device = "cpu",
    json: Json = None,
    journal: Journal = "",
    live: Live = True,
    fault: Fault = "",
) -> None:
    """Serve real prompts while engines join and leave; exit 0 only if no request was lost and every token is right."""
    scenario = {
        "path": _sizes(path),
        "transfer": one_of("--transfer", transfer, TRANSFERS),
        "eplb": one_of("--eplb", eplb, PACES),
        "eplb_interval": eplb_interval,
        "eplb_window": eplb_window,
        "eplb_step_bytes": eplb_step_bytes,
        "policy": one_of("--eplb-policy", eplb_policy, POLICIES),
        "verify_experts": verify_experts,
        "seconds": seconds,
        "clients": clients,
        "device": one_of("--device", device, DEVICES),
        "slots": slots,
        "largest": largest,
        "journal": journal,
        "faults": (one_of("--break", fault, FAULTS),) if fault else (),
    }
    sys.exit(_run(model, scenario, live, json))


def _run(model: Path | None, scenario: dict[str, Any], live: bool, json: Path | None) -> int:
    """Run the scenario and show its report; returns the exit code."""
    from rich.console import Console

    from elasticfsm.runtime.demo.report import show
    from elasticfsm.runtime.demo.scenario import Run, Scenario
    from elasticfsm.runtime.models import PSALTER

    signal.signal(signal.SIGTERM, _terminate)
    # whoever started this may have blocked them: Ctrl-C must end it all the same
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    console = Console()
    report = Run(Scenario(model=(model or PSALTER).resolve(), **scenario), console, live).execute()
    show(report, console)
    if json is not None:
        import msgspec

        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return 0 if report.ok else 1


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise RequestRefused(f"--path {text}: expected numbers of engines with commas between, such as 2,4,2") from None


def _terminate(number: int, frame: object) -> None:
    """SIGTERM unwinds like an exception, so that everything is ended and removed."""
    sys.exit(128 + number)
