"""`elasticfsm compile`: a protocol as the JSON table that an engine reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs


def compile(
    spec: Annotated[str, typer.Argument(help="A shipped protocol (scale_up) or the path of a YAML file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", callback=outputs.file, help="Write here instead of to stdout.")
    ] = None,
) -> None:
    """Compile a protocol to the JSON table that `elasticfsm.embed` reads without YAML."""
    from elasticfsm.compile import compile_protocol
    from elasticfsm.protocol import load
    from elasticfsm.table import encode

    text = encode(compile_protocol(load(spec)))
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
