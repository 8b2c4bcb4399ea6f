"""`elasticfsm serve`: a deployment in the foreground, with HTTP routes for reconcilers and clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def serve(
    model: Annotated[Path | None, typer.Option(help="A Qwen3-MoE directory; default: the psalter model.")] = None,
    size: Annotated[int, typer.Option(help="Engines at the start.", min=1)] = 2,
    directory: Annotated[
        Path | None, typer.Option(help="For sockets, records and journals; default: one for each user.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Take over the engines of a coordinator that is gone, from its directory.")
    ] = None,
    http: Annotated[str, typer.Option(help="HOST:PORT of the routes, this machine only; port 0: any.")] = "127.0.0.1:0",
    address: Annotated[str, typer.Option(help="Where engines join; default: a socket in the directory.")] = "",
    launch: Annotated[bool, typer.Option("--launch/--no-launch", help="Start engines, or wait for them.")] = True,
    engine: Annotated[list[str] | None, typer.Option(help="Ids of the first engines, when you start them.")] = None,
    operation: Annotated[str, typer.Option(help="Operation id of the first engines, when you start them.")] = "",
    slots: Annotated[int, typer.Option(help="Expert slots per engine; 0: enough at the start, and two.", min=0)] = 0,
    largest: Annotated[int, typer.Option(help="More engines than this are refused.", min=1)] = 8,
    transfer: Annotated[str, typer.Option(help="How weights move: nixl, p2p, or auto.")] = "auto",
    eplb: Annotated[str, typer.Option(help="When experts move: async, sync or off.")] = "async",
    eplb_interval: Annotated[int, typer.Option(help="Steps between two rebalances.", min=1)] = 200,
    device: Annotated[str, typer.Option(help="Where engines run: cpu or cuda.")] = "cpu",
    keep: Annotated[
        float, typer.Option(help="Seconds that engines serve on without a coordinator, to be taken over.", min=1)
    ] = 600.0,
    keep_retired: Annotated[
        bool, typer.Option("--keep-retired", help="Engines that left stay up until they are told to end.")
    ] = False,
    cooldown: Annotated[float, typer.Option(help="Seconds between two operations.", min=0)] = 0.0,
    prepare_timeout: Annotated[float, typer.Option(help="Seconds to prepare: boot and weights.", min=0.1)] = 300.0,
    commit_timeout: Annotated[float, typer.Option(help="Seconds for the switch.", min=0.1)] = 30.0,
    drain_timeout: Annotated[float, typer.Option(help="Seconds for requests to end, if asked for.", min=0.1)] = 120.0,
    grace: Annotated[float, typer.Option(help="Seconds for all that is open after SIGTERM or Ctrl-C.", min=0)] = 30.0,
    logs: Annotated[str, typer.Option(help="Lines for people (text), or one JSON object each (json).")] = "text",
    metric_names: Annotated[str, typer.Option(help="Names of common metrics: elasticfsm_..., or vllm:...")] = (
        "elasticfsm"
    ),
) -> None:
    """Serve a model until SIGTERM or Ctrl-C; `scale`, `status` and `cancel` reach it from another terminal."""
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.models import PSALTER
    from elasticfsm.runtime.operation import new_id
    from elasticfsm.runtime.options import Options
    from elasticfsm.runtime.service.finding import default_directory
    from elasticfsm.runtime.service.foreground import Foreground, Serving

    if resume is not None and (model is not None or directory is not None):
        raise RequestRefused("--resume takes everything from its directory; leave --model and --directory out")
    for name, found, known in (
        ("--transfer", transfer, ("auto", "nixl", "p2p")),
        ("--eplb", eplb, ("async", "sync", "off")),
        ("--device", device, ("cpu", "cuda")),
        ("--logs", logs, ("text", "json")),
        ("--metric-names", metric_names, ("elasticfsm", "vllm")),
    ):
        if found not in known:
            raise RequestRefused(f"{name} {found}: expected {', '.join(known)}")
    options = Options(
        slots=slots,
        largest=largest,
        transfer=transfer,  # type: ignore[arg-type]
        eplb=eplb,  # type: ignore[arg-type]
        eplb_interval=eplb_interval,
        address=address,
        directory=str(resume or directory or default_directory()),
        launch=launch,
        deadlines={"prepare": prepare_timeout, "commit": commit_timeout},
        device=device,  # type: ignore[arg-type]
        keep=keep,
        keep_retired=keep_retired,
        cooldown=cooldown,
        drain_timeout=drain_timeout,
        boot_operation=operation or new_id("boot"),
        engines=tuple(engine or ()),
    )
    serving = Serving(
        model=(model or PSALTER).resolve(),
        size=size,
        options=options,
        resume=resume is not None,
        http=http,
        logs=logs,  # type: ignore[arg-type]
        names=metric_names,  # type: ignore[arg-type]
        grace=grace,
    )
    sys.exit(Foreground(serving, Console()).run())
