"""`elasticfsm lint`: static checks of protocol files."""

from __future__ import annotations

from typing import Annotated

import typer


def lint(
    specs: Annotated[
        list[str] | None, typer.Argument(help="Shipped protocols or YAML files; default: all shipped.")
    ] = None,
) -> None:
    """Check protocol files without exploring them; exit 2 if one is wrong (a warning alone is not)."""
    from elasticfsm.lint import lint as findings_of
    from elasticfsm.protocol import load, shipped

    names = specs or shipped()
    found = [entry for name in names for entry in findings_of(load(name))]
    errors = [entry for entry in found if entry.severity == "error"]
    for entry in found:
        typer.echo(str(entry), err=True)
    if errors:
        raise typer.Exit(2)
    typer.echo(f"{len(names)} protocols: no errors, {len(found)} warnings")
