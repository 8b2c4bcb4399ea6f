"""`elasticfsm schema`: the JSON Schema of the spec language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs


def schema(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write it; default: spec/schema.json.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit 1 if the file is stale.")] = False,
) -> None:
    """Write the JSON Schema of protocol files, vocabulary and patches, for editors."""
    from elasticfsm import schema as of_language

    path = out or of_language.FILE
    if not check:
        outputs.refuse_file(path, "--out")
        of_language.write(path)
        typer.echo(f"{path} written")
    elif of_language.is_fresh(path):
        typer.echo(f"{path} is the schema of the language")
    else:
        typer.echo(f"{path} is stale: run `elasticfsm schema` and commit what it writes", err=True)
        raise typer.Exit(1)
