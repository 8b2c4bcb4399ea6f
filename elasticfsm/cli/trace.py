"""`elasticfsm trace check DIR`: hold the journals of a finished run against the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace_check(
    directory: Annotated[Path, typer.Argument(help="The directory of journals (*.jsonl) that a run wrote.")],
    limit: Annotated[int, typer.Option(help="Print at most so many findings.", min=0)] = 20,
) -> None:
    """Validate the journals of a finished run against the spec; exit 1 when something is not allowed by it."""
    from elasticfsm.journal import read
    from elasticfsm.trace import validate

    findings = validate(directory)
    if not findings:
        journals = read(directory)
        events = sum(len(events) for events in journals.values())
        typer.echo(f"valid: {events} events of {len(journals)} journals are what the spec allows")
        return
    for finding in findings[:limit]:
        typer.echo(str(finding))
    typer.echo(f"not valid: {len(findings)} findings{'' if len(findings) <= limit else f', {limit} shown'}")
    raise typer.Exit(1)
