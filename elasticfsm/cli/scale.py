"""`elasticfsm scale`: change the number of engines of a running deployment, from any terminal."""

from __future__ import annotations

import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from elasticfsm.runtime.service.client import Answer, Client

LOOK = 0.2  # seconds
ENDED = ("completed", "aborted", "failed")


def scale(
    size: Annotated[int, typer.Argument(help="Engines that shall serve.")],
    remove: Annotated[list[str] | None, typer.Option(help="Engine that leaves (again for more); any may.")] = None,
    add: Annotated[list[str] | None, typer.Option(help="Id of an engine that joins, when you start it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end, or return at once.")] = True,
    drain: Annotated[
        bool, typer.Option("--drain", help="Finish the requests of leaving engines instead of handing them over.")
    ] = False,
    drain_timeout: Annotated[float | None, typer.Option(help="Seconds for that; default: 120.", min=0.1)] = None,
    operation: Annotated[str, typer.Option(help="Id of the operation; the same id again joins it.")] = "",
    directory: Annotated[Path | None, typer.Option(help="Directory of the deployment.")] = None,
    url: Annotated[str, typer.Option(help="Where it answers, instead.")] = "",
) -> None:
    """Exit 0 when the new size serves, 1 when it was aborted or failed, 2 when refused, 3 when nobody can say."""
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.service.client import Client
    from elasticfsm.runtime.service.finding import find

    if drain_timeout is not None and not drain:
        raise RequestRefused("--drain-timeout is for --drain; give both, or neither")
    client, console = Client(find(directory, url)), Console()
    body: dict[str, Any] = {
        "new_data_parallel_size": size,
        "retire_engines": remove or [],
        "add_engines": add or [],
        "dry_run": dry_run,
        "wait": False,
        "drain": drain,
        "drain_timeout": drain_timeout or 120.0,
        "operation_id": operation,
    }
    answer = ask(client, "/scale_elastic_ep", body)
    record: dict[str, Any] | None = answer.body.get("operation") if isinstance(answer.body, dict) else None
    ended = record is not None and record["phase"] in ENDED
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
    sys.exit(0 if follow(client, record, console) == "completed" else 1)


def ask(client: Client, path: str, body: dict[str, Any]) -> Answer:
    """POST; Unknown when the request went out and no answer came: it may have been obeyed."""
    from elasticfsm.runtime.service.client import Unknown, Unreachable

    try:
        answer = client.post(path, body)
    except Unreachable as error:
        if not error.sent or body.get("dry_run"):
            raise
        raise Unknown(f"what became of the request is unknown: {error}; then {_how(body['operation_id'])}") from None
    if answer.code == HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(answer.body, dict):
        raise Unknown(f"what became of the request is unknown: {answer.error}; {_how(body['operation_id'])}")
    return answer


def follow(client: Client, begun: dict[str, Any], console: Console) -> str:
    """Print where an operation stands, once for each state, until it has ended; returns the phase in which it did.

    Unknown when that cannot be learnt any more.
    """
    from elasticfsm.runtime.service.client import Unknown, Unreachable

    operation, said = str(begun["operation_id"]), ""
    while True:
        try:
            seen = client.status()
        except Unreachable as error:
            raise Unknown(
                f"the outcome of {operation} is unknown, it had reached: {said or 'nothing'}; {error}, and decides it; "
                f"then {_how(operation)}"
            ) from None
        record = seen.get("operation") or {}
        if record.get("operation_id") != operation:
            record = {**begun, "detail": "", "phase": "", **seen.get("ended_operations", {}).get(operation, {})}
        if record["phase"] not in ENDED and seen.get("operation_id") != operation:
            raise Unknown(f"{client.url} does not know operation {operation}, which had reached: {said or 'nothing'}")
        if record["detail"] != said or record["phase"] in ENDED:
            said = record["detail"]
            _show(record, console)
        if record["phase"] in ENDED:
            return str(record["phase"])
        time.sleep(LOOK)


def _how(operation: str) -> str:
    """How to learn what became of an operation."""
    again = f", and `elasticfsm scale SIZE --operation {operation}` how it ended" if operation else ""
    return f"`elasticfsm status` says which size serves{again}"


def _show(record: dict[str, Any], console: Console) -> None:
    text = f"{record.get('operation_id', '')} to {record.get('requested_size', '')}: {record.get('phase', '')}"
    text += f" ({record['detail']})" if record.get("detail") else ""
    text += f": {record['error']}" if record.get("error") else ""
    console.print(text, highlight=False, soft_wrap=True, markup=False)
