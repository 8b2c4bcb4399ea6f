"""`elasticfsm draw`: state diagrams, sequence charts and an engine, drawn from the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs


def draw(
    specs: Annotated[
        list[str] | None, typer.Argument(help="Shipped protocols or YAML files; default: all shipped.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the pictures.")] = Path("diagrams"),
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit 1 if a picture is stale.")] = False,
) -> None:
    """Draw every machine, one sequence chart per protocol and an engine, as SVG beside their text."""
    from elasticfsm.draw import stale, write

    if not check:
        outputs.refuse_directory(out, "--out")
        written = write(out, specs)
        typer.echo(f"{len(written)} files written to {out}")
        return
    lines = stale(out, specs)
    if lines:
        typer.echo("\n".join([*lines, "run `elasticfsm draw` and commit what it writes"]), err=True)
        raise typer.Exit(1)
    typer.echo(f"{out} is what the spec says")
