"""`elasticfsm check`: the model checker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs


def check(
    specs: Annotated[
        list[str] | None, typer.Argument(help="Protocols by name or path; default: all, and every shipped patch.")
    ] = None,
    patch: Annotated[
        list[str] | None, typer.Option("--patch", help="A patch by name or path; its property must be refuted.")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--sizes", help="Engines of each role, as in 2+1; may be repeated.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", callback=outputs.file, help="Write everything that was found to this file.")
    ] = None,
    counterexample: Annotated[
        Path | None,
        typer.Option(help="Write each refutation here: text, chart, and a test that replays it on the runtime."),
    ] = None,
    unreduced: Annotated[
        bool, typer.Option("--unreduced", help="Explore every interleaving, without reductions.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes only, in seconds.")] = False,
    max_states: Annotated[
        int, typer.Option("--max-states", min=1, help="Give up a run beyond this many states.")
    ] = 30_000_000,
    crash: Annotated[int, typer.Option(min=0, help="So many deaths of engines and coordinator, anywhere.")] = 0,
    loss: Annotated[int, typer.Option(min=0, help="So many lost messages.")] = 0,
    duplicate: Annotated[int, typer.Option(min=0, help="So many messages that come again.")] = 0,
    failure: Annotated[int, typer.Option(min=0, help="So many steps that fail and touch nobody else.")] = 0,
    expiry: Annotated[
        str, typer.Option(help="Deadlines: off, perfect (only when hopeless), eventual or arbitrary; see above.")
    ] = "",
    restart: Annotated[bool, typer.Option("--restart", help="A dead coordinator comes back.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="A new engine's death before the commit must not cost the service.")
    ] = False,
    over: Annotated[
        list[str] | None, typer.Option("--over", help="A protocol in the place of the one whose name it bears.")
    ] = None,
    faulty: Annotated[
        bool, typer.Option("--faulty", help="The shipped patches only, as a table: bug, base, property, how it went.")
    ] = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="Explore what was tried for the switch and write docs/switch.md.")
    ] = False,
    engine: Annotated[
        str, typer.Option("--engine", help="plain, vector (numpy), or auto: vector where there are many states.")
    ] = "auto",
) -> None:
    """Explore every reachable interleaving of protocols; exit 1 if one is refuted or a patch is not.

    With faults (--crash, --loss, ...) deadlines fire at any moment unless --expiry says otherwise.
    """
    from elasticfsm.check.run import Options, check
    from elasticfsm.check.world import faulty as regime_of

    if rules:
        from elasticfsm.check.switch import write

        raise typer.Exit(write())

    if counterexample is not None:
        outputs.refuse_directory(counterexample, "--counterexample")
    options = Options(list(sizes or []), not unreduced, quick, max_states, engine, counterexample)
    options.regime = regime_of(crash, loss, duplicate, failure, expiry, restart, strict)
    options.over = list(over or [])
    raise typer.Exit(check(list(specs or []), list(patch or []), options, as_json=json, faulty=faulty))
