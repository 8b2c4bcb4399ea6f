"""`elasticfsm explain DIR`: who waits for whom in a stuck or dead run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    directory: Annotated[Path, typer.Argument(help="The directory of journals (*.jsonl) that a run wrote.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say who waits for whom, since when, and what the spec expected, from the journals of a stuck or dead run."""
    from elasticfsm import explain as explaining

    explanation = explaining.explain(directory)
    typer.echo(explanation.json().decode() if json else explaining.text(explanation))
