"""`elasticfsm cancel`: undo the operation that runs, if it is not too late."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def cancel(
    operation: Annotated[str, typer.Option(help="Only the operation of this id.")] = "",
    directory: Annotated[Path | None, typer.Option(help="Directory of the deployment.")] = None,
    url: Annotated[str, typer.Option(help="Where it answers, instead.")] = "",
) -> None:
    """Exit 0 when the operation was aborted, 1 when it was too late (the engines had switched), 2 when none runs.

    3: nobody can say what became of it.
    """
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.service.client import Client
    from elasticfsm.runtime.service.finding import find

    from .scale import ask, follow

    client, console = Client(find(directory, url)), Console()
    answer = ask(client, "/scale_elastic_ep/cancel", {"operation_id": operation, "wait": False})
    if answer.code >= 400:
        raise RequestRefused(answer.error)
    record = answer.body.get("operation") if isinstance(answer.body, dict) else None
    if record is None:
        raise RequestRefused(f"{client.url} answered without a record: {answer.body}")
    sys.exit(0 if follow(client, record, console) == "aborted" else 1)
