"""Writes a protocol in the language of another model checker, so that its verdict can be asked as well."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__, no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


@app.command("promela")
def promela(
    spec: Annotated[str, typer.Argument(help="A shipped protocol or a file.")],
    sizes: Annotated[str, typer.Option(help="How many engines of each role, as in 2+1.")] = "",
    cancel: Annotated[bool, typer.Option(help="Let the operator cancel once, at any moment.")] = False,
    out: Annotated[
        Path | None, typer.Option(callback=outputs.file, help="Where to write; without it, on standard output.")
    ] = None,
) -> None:
    """A protocol at one size as Promela, for SPIN; see docs/oracles.md."""
    from elasticfsm.check.world import sizes_of
    from elasticfsm.compile import compile_protocol
    from elasticfsm.export.promela import promela as write
    from elasticfsm.protocol import load

    program = compile_protocol(load(spec))
    text = write(program, sizes_of(program, sizes or "+".join("1" for _ in program.roles)), cancel)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text)
