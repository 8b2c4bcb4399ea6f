"""`elasticfsm mutate`: how many one-edit mistakes in a protocol the checker finds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs


def mutate(
    spec: Annotated[str, typer.Argument(help="A protocol by name or path.")],
    sizes: Annotated[
        list[str] | None, typer.Option("--sizes", help="Engines of each role, as in 1+1, instead of the usual runs.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", callback=outputs.file, help="Write each result here; what it knows is not run again."),
    ] = None,
    only: Annotated[str, typer.Option("--only", help="One kind of mutants, as in 'drop step'.")] = "",
    every: Annotated[int, typer.Option("--every", min=1, help="A sample: every so-manieth mutant.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the work.")] = 1,
    explained: Annotated[
        Path | None, typer.Option("--explained", help="A file of reasons for survivors; exit 1 if it differs.")
    ] = None,
) -> None:
    """Make every one-edit mutant of a protocol and check it; exit 1 if one survives that is not explained.

    Mutants that lint refuses count as killed. Without --sizes an operation is run at 1+1 and 2+1, with a cancel, with
    one device queue, and with each kind of fault over simpler experts and engines; a protocol without operation by
    itself and inside operations. What differs only where none of these runs come does not count. Takes minutes;
    --json lets it go on where it stopped, and try first what refuted a mutant before the protocol was changed.
    """
    from elasticfsm.mutate.report import run

    raise typer.Exit(run(spec, sizes, json, only, explained, every, jobs))
