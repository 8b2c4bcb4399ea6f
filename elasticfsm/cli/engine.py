"""`elasticfsm engine`: one engine process, started by the coordinator or by anybody else who knows its address."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer


def engine(
    join: Annotated[str, typer.Option(help="Address of the coordinator: ipc:///path.sock or tcp://127.0.0.1:port.")],
    operation: Annotated[str, typer.Option(help="Id of the operation that this engine was started for.")],
    engine_id: Annotated[str, typer.Option(help="Stable id of this engine, such as a pod's name.")],
    parent: Annotated[int, typer.Option(help="End when this process is gone (its id); 0: never.")] = 0,
    keep: Annotated[float, typer.Option(help="Seconds to wait for another coordinator when that is gone.", min=0)] = 0,
    grace: Annotated[float, typer.Option(help="Seconds that SIGTERM leaves to remove the engine.", min=0)] = 60,
) -> None:
    """Run one engine until told to end. SIGTERM: remove it from the deployment, then end; twice: end now."""
    import importlib

    from elasticfsm.runtime.launch import die_with_parent, gently

    # `run_engine` waits for these in a thread; blocked from the start, so that threads made by imports inherit it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        if parent and not keep:
            die_with_parent(parent)
        process = gently(lambda: importlib.import_module("elasticfsm.runtime.engine.process"))
        code = process.run_engine(process.Joining(join, operation, engine_id, parent, keep, grace))
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # children inherit a mask: a refused call leaves none behind
        raise
    sys.exit(code)
