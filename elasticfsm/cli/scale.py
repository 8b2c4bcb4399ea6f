"""`elasticfsm scale`: change the number of engines of a running deployment, from any terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from elasticfsm.runtime.service.client import Client

LOOK = 0.2  # seconds


def scale(
    size: Annotated[int, typer.Argument(help="Engines that shall serve.")],
    remove: Annotated[list[str] | None, typer.Option(help="Engine that leaves (again for more); any may.")] = None,
    add: Annotated[list[str] | None, typer.Option(help="Id of an engine that joins, when you start it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end, or return at once.")] = True,
    drain: Annotated[
        bool, typer.Option("--drain", help="Finish the requests of leaving engines instead of handing them over.")
    ] = False,
    drain_timeout: Annotated[float, typer.Option(help="Seconds for that.", min=0.1)] = 120.0,
    operation: Annotated[str, typer.Option(help="Id of the operation; the same id again joins it.")] = "",
    directory: Annotated[Path | None, typer.Option(help="Directory of the deployment.")] = None,
    url: Annotated[str, typer.Option(help="Where it answers, instead.")] = "",
) -> None:
    """Exit 0 when the new size serves, 1 when the operation was aborted or failed, 2 when it was refused."""
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.service.client import Client
    from elasticfsm.runtime.service.finding import find

    client, console = Client(find(directory, url)), Console()
    body: dict[str, Any] = {
        "new_data_parallel_size": size,
        "retire_engines": remove or [],
        "add_engines": add or [],
        "dry_run": dry_run,
        "wait": False,
        "drain": drain,
        "drain_timeout": drain_timeout,
        "operation_id": operation,
    }
    answer = client.post("/scale_elastic_ep", body)
    record: dict[str, Any] | None = answer.body.get("operation") if isinstance(answer.body, dict) else None
    ended = record is not None and record["phase"] in ("completed", "aborted", "failed")
    if answer.code >= 400 and not (ended and operation):
        raise RequestRefused(answer.error)
    if dry_run:
        console.print_json(data=answer.body)
        return
    if record is None:
        raise RequestRefused(f"{client.url} answered without a record: {answer.body}")
    if not wait or ended:
        _show(record, console)
        sys.exit(0 if not ended or record["phase"] == "completed" else 1)
    sys.exit(follow(client, str(record["operation_id"]), console))


def follow(client: Client, operation: str, console: Console) -> int:
    """Print where an operation stands, once for each state, until it has ended; returns the exit code."""
    said = ""
    while True:
        record = client.status().get("operation") or {}
        if record.get("operation_id") != operation:
            console.print(f"{operation} is no longer the last operation; it had reached: {said or 'nothing'}")
            return 1
        if record["detail"] != said:
            said = record["detail"]
            _show(record, console)
        if record["phase"] in ("completed", "aborted", "failed"):
            return 0 if record["phase"] == "completed" else 1
        time.sleep(LOOK)


def _show(record: dict[str, Any], console: Console) -> None:
    text = f"{record.get('operation_id', '')} to {record.get('requested_size', '')}: {record.get('phase', '')}"
    text += f" ({record['detail']})" if record.get("detail") else ""
    text += f": {record['error']}" if record.get("error") else ""
    console.print(text, highlight=False, soft_wrap=True, markup=False)
