"""`elasticfsm conform`: what the checker explored, walked on the real interpreters and monitors."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

SIZES = {1: ["1", "2", "3"], 2: ["1+1"]}  # by how many roles a protocol has


def conform(
    specs: Annotated[list[str] | None, typer.Argument(help="Protocols by name or path; default: all shipped.")] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--sizes", help="Engines of each role, as in 2+1; may be repeated.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=0, help="Cover edges within so many of the start, 0: none; default: all."),
    ] = None,
    walks: Annotated[
        int, typer.Option("--walks", min=0, help="Walks at random through all interleavings, on top.")
    ] = 20,
    cancel: Annotated[bool, typer.Option("--cancel", help="The operator may cancel at any moment.")] = False,
    crash: Annotated[int, typer.Option("--crash", min=0, help="So many processes may die.")] = 0,
    loss: Annotated[int, typer.Option("--loss", min=0, help="So many messages may be lost.")] = 0,
    duplicate: Annotated[int, typer.Option("--duplicate", min=0, help="So many messages may come twice.")] = 0,
    expiry: Annotated[str, typer.Option("--expiry", help="Deadlines: off, or arbitrary.")] = "off",
    restart: Annotated[bool, typer.Option("--restart", help="A dead coordinator is started again.")] = False,
    max_states: Annotated[
        int, typer.Option("--max-states", min=1, help="Explore no more; then edges are covered as far as all were.")
    ] = 20_000,
) -> None:
    """Walk every edge of the explored graph on the real objects and compare each state; exit 1 if they part."""
    from elasticfsm.check.conform import conform as walked
    from elasticfsm.check.world import Regime, sizes_of
    from elasticfsm.compile import compile_protocol
    from elasticfsm.protocol import load, shipped

    logging.getLogger("elasticfsm.runtime.interpreter").setLevel(logging.CRITICAL)  # steps are told to fail
    if expiry not in ("off", "arbitrary"):
        raise typer.BadParameter(f"`{expiry}`: expected off or arbitrary", param_hint="--expiry")
    regime = Regime(cancel=cancel, crashes=crash, losses=loss, duplicates=duplicate, expiry=expiry, restart=restart)
    programs = [compile_protocol(load(name)) for name in specs or shipped()]
    todo = [(program, text) for program in programs for text in sizes or SIZES.get(len(program.roles), ["1+1+1"])]
    engines = [sizes_of(program, text) for program, text in todo]
    for (program, text), numbers in zip(todo, engines, strict=True):
        found = walked(program, numbers, regime, steps, walks, limit=max_states)
        bound = "" if found.within is None else f" within {found.within} steps of the start"
        covered = f"{found.edges:,} edges of {found.states:,} states{bound}: {found.walks} walks, "
        covered += f"{found.steps:,} micro-steps, "
        typer.echo(
            f"{program.name} {text}, {found.regime}: {covered if found.walks else ''}{found.random_walks} random walks "
            f"({found.random_steps:,}); every state the same; {found.overruled} times the interpreter would have "
            f"preferred another enabled guard; {found.seconds:.1f} s"
        )
