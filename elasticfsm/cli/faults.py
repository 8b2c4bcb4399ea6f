"""`elasticfsm faults`: faults really injected, for each role in each state of each protocol."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer

from . import outputs


def faults(
    only: Annotated[
        list[str] | None, typer.Option(help="Only cells with this text (or pattern) in their name; repeatable.")
    ] = None,
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write all results here, as JSON.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Add the results to faults.json in this directory, and write its faults.md.")
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only cells that --record has not seen pass.")] = False,
    within: Annotated[float, typer.Option(help="Begin no cell after so many seconds; 0: run all.", min=0)] = 0.0,
    again: Annotated[float, typer.Option(help="This share of the cells runs a second time.", min=0, max=1)] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the cells that run twice.", min=0)] = 0,
    timescale: Annotated[float, typer.Option(help="Every limit of time is multiplied by this.", min=0.05)] = 0.2,
    jobs: Annotated[int, typer.Option(help="So many deployments at the same time.", min=1)] = 1,
    list_: Annotated[bool, typer.Option("--list", help="Only say which cells there are.")] = False,
) -> None:
    """Kill, stop, delay, break and cut engines and coordinator everywhere; exit 0 only if every cell passes."""
    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.faults.cells import all_cells
    from elasticfsm.runtime.faults.run import run

    cells = [cell for cell in all_cells() if not only or any(fnmatch(cell.name, f"*{text}*") for text in only)]
    if missing and record is not None:
        from elasticfsm.runtime.faults.table import missing as not_passed

        cells = not_passed(cells, record)
    if not cells:
        raise RequestRefused(f"--only {' '.join(only or [])}: no cell has that in its name; --list shows them")
    if list_:
        for cell in cells:
            typer.echo(cell.name)
        return
    results = run(cells, timescale, again, seed, jobs, within or float("inf"))
    if json is not None:
        import msgspec

        json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    if record is not None:
        from elasticfsm.runtime.faults.table import record as keep

        keep(results, record)
    sys.exit(0 if all(result.passed for result in results) else 1)
