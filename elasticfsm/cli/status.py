"""`elasticfsm status`: who serves, and where the operation stands."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

LOOK = 0.5  # seconds between two looks of --watch


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as it is.")] = False,
    directory: Annotated[Path | None, typer.Option(help="Directory of the deployment.")] = None,
    url: Annotated[str, typer.Option(help="Where it answers, instead.")] = "",
) -> None:
    """Exit 0 while the deployment serves, 1 when it has failed, 2 when nobody answers."""
    from rich.console import Console
    from rich.live import Live

    from elasticfsm.runtime.service.client import Client
    from elasticfsm.runtime.service.finding import find

    client, console = Client(find(directory, url)), Console()
    seen = client.status()
    if not watch:
        console.print_json(data=seen) if json else console.print(picture(seen))
        sys.exit(1 if seen["failed"] else 0)
    if json or not console.is_terminal:
        _lines(client, console, json)
    with Live(picture(seen), console=console, auto_refresh=False) as live:
        while not seen["failed"]:
            time.sleep(LOOK)
            seen = client.status()
            live.update(picture(seen), refresh=True)
    sys.exit(1)


def _lines(client: Any, console: Any, json: bool) -> None:
    """One line for each change, for logs and pipes."""
    import json as text

    said = ""
    while True:
        seen = client.status()
        line = text.dumps(_coarse(seen)) if json else headline(seen)
        if line != said:
            said = line
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        if seen["failed"]:
            sys.exit(1)
        time.sleep(LOOK)


def _coarse(seen: dict[str, Any]) -> dict[str, Any]:
    """Without what changes with every step."""
    return {name: value for name, value in seen.items() if name not in ("engines", "operation", "sizes")}


def headline(seen: dict[str, Any]) -> str:
    """One line."""
    text = f"{seen['active_data_parallel_size']} engines serve, generation {seen['generation']}"
    if seen["failed"]:
        text = f"failed: {seen['failed']}"
    if seen["operation_id"]:
        text += f"; {seen['operation_id']} to {seen['operation']['requested_size']}: {seen['phase']}"
        text += f" ({seen['detail']})" if seen["detail"] else ""
    if seen["operation"] and seen["operation"]["error"]:
        text += f": {seen['operation']['error']}"
    return text


def picture(seen: dict[str, Any]) -> Any:
    """A headline and one line for each engine."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    colours = {"active": "green", "joining": "cyan", "retiring": "yellow", "failed": "red"}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("engine", "state", "rank", "ready", "operation", "steps", "running", "waiting"):
        table.add_column(name, justify="right" if name in ("rank", "steps", "running", "waiting") else "left")
    for engine, each in seen["engines"].items():
        colour = colours.get(each["state"], "dim")
        table.add_row(
            engine,
            f"[{colour}]{each['state']}[/]",
            "" if each["rank"] is None else str(each["rank"]),
            "yes" if each["ready"] else "no",
            each["operation_state"] or "",
            str(each["step"]),
            str(each["running"]),
            str(each["waiting"]),
        )
    safe = f"safe to delete: {', '.join(seen['safe_to_delete'])}" if seen["safe_to_delete"] else ""
    return Group(Text(headline(seen), style="bold"), table, *([Text(safe)] if safe else []))
