"""`elasticfsm serve`: a deployment in the foreground, with HTTP routes for reconcilers and clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticfsm.errors import RequestRefused

from .options import (
    DEVICES,
    PACES,
    POLICIES,
    TRANSFERS,
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

Place = Annotated[Path | None, typer.Option(help="For sockets, records and journals; default: one for each user.")]
Former = Annotated[Path | None, typer.Option(help="Take over the engines of a coordinator that is gone, from there.")]
Http = Annotated[str, typer.Option(help="HOST:PORT of the routes, this machine only; port 0: any.")]
Address = Annotated[str, typer.Option(help="Where engines join; default: a socket in the directory.")]
Launch = Annotated[bool, typer.Option("--launch/--no-launch", help="Start engines, or wait for them.")]
Engines = Annotated[list[str] | None, typer.Option(help="Ids of the first engines, when you start them.")]
First = Annotated[str, typer.Option(help="Operation id of the first engines, when you start them.")]
Slots = Annotated[int, typer.Option(help="Expert slots per engine; 0: enough at the start, and two.", min=0)]
Keep = Annotated[float, typer.Option(help="Seconds that engines serve on without a coordinator.", min=1)]
Stay = Annotated[bool, typer.Option("--keep-retired", help="Engines that left stay up until they are told to end.")]
Cooldown = Annotated[float, typer.Option(help="Seconds between two operations.", min=0)]
Prepare = Annotated[float, typer.Option(help="Seconds to prepare: boot and weights.", min=0.1)]
Commit = Annotated[float, typer.Option(help="Seconds for the switch.", min=0.1)]
Drain = Annotated[float, typer.Option(help="Seconds for requests to end, if asked for.", min=0.1)]
Grace = Annotated[float, typer.Option(help="Seconds for all that is open after SIGTERM or Ctrl-C.", min=0)]
Logs = Annotated[str, typer.Option(help="Lines for people (text), or one JSON object each (json).")]
Names = Annotated[str, typer.Option(help="Names of common metrics: elasticfsm_..., or vllm:...")]


OF_THIS_PROCESS = {"resume", "http", "grace", "logs", "metric_names"}  # all else belongs to the deployment


def serve(
    ctx: typer.Context,
    model: Model = None,
    size: Annotated[int, typer.Option(help="Engines at the start.", min=1)] = 2,
    directory: Place = None,
    resume: Former = None,
    http: Http = "127.0.0.1:0",
    address: Address = "",
    launch: Launch = True,
    engine: Engines = None,
    operation: First = "",
    slots: Slots = 0,
    largest: Largest = 8,
    transfer: Transfer = "auto",
    eplb: Eplb = "async",
    eplb_interval: Interval = 200,
    eplb_window: Window = 200,
    eplb_policy: Policy = "bounded",
    eplb_step_bytes: StepBytes = 0,
    device: Device = "cpu",
    keep: Keep = 600.0,
    keep_retired: Stay = False,
    cooldown: Cooldown = 0.0,
    prepare_timeout: Prepare = 300.0,
    commit_timeout: Commit = 30.0,
    drain_timeout: Drain = 120.0,
    grace: Grace = 30.0,
    logs: Logs = "text",
    metric_names: Names = "elasticfsm",
) -> None:
    """Serve a model until SIGTERM or Ctrl-C; `scale`, `status` and `cancel` reach it from another terminal."""
    given = [name for name in ctx.params if name not in OF_THIS_PROCESS and _typed(ctx, name)]
    if resume is not None and given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise RequestRefused(f"--resume takes everything from its directory; leave {named} out")
    options = {
        "slots": slots,
        "largest": largest,
        "transfer": one_of("--transfer", transfer, TRANSFERS),
        "eplb": one_of("--eplb", eplb, PACES),
        "eplb_interval": eplb_interval,
        "eplb_window": eplb_window,
        "policy": {"kind": one_of("--eplb-policy", eplb_policy, POLICIES)},
        "eplb_step_bytes": eplb_step_bytes,
        "address": address,
        "launch": launch,
        "deadlines": {"prepare": prepare_timeout, "commit": commit_timeout},
        "device": one_of("--device", device, DEVICES),
        "keep": keep,
        "keep_retired": keep_retired,
        "cooldown": cooldown,
        "drain_timeout": drain_timeout,
        "boot_operation": operation,
        "engines": tuple(engine or ()),
    }
    words = {
        "logs": one_of("--logs", logs, ("text", "json")),
        "names": one_of("--metric-names", metric_names, ("elasticfsm", "vllm")),
    }
    _run(model, size, resume or directory, options, resume=resume is not None, http=http, grace=grace, **words)


def _typed(ctx: typer.Context, name: str) -> bool:
    """Whether an option was given, with whatever value."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _run(model: Path | None, size: int, place: Path | None, options: dict[str, Any], **serving: Any) -> None:
    """Serve in the foreground, and exit with what became of it."""
    import msgspec
    from rich.console import Console

    from elasticfsm.runtime.models import PSALTER
    from elasticfsm.runtime.operation import new_id
    from elasticfsm.runtime.options import Options
    from elasticfsm.runtime.service.finding import default_directory
    from elasticfsm.runtime.service.foreground import Foreground, Serving

    options |= {"directory": str(place or default_directory())}
    options |= {"boot_operation": options["boot_operation"] or new_id("boot")}
    asked = msgspec.convert(options, Options)
    served = Serving(model=(model or PSALTER).resolve(), size=size, options=asked, **serving)
    sys.exit(Foreground(served, Console()).run())
