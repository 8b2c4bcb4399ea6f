"""The whole suite, as the command runs it."""

from __future__ import annotations

import logging
import time

from rich.console import Console

from .cells import Cell
from .result import Result
from .rig import Rig
from .suite import Suite, again


def run(cells: list[Cell], timescale: float, share: float, seed: int) -> list[Result]:
    """Run cells, and a share of them again; says a line for each. Blocks; whatever happens, no process is left."""
    console = Console(highlight=False)
    logging.getLogger("elasticfsm").setLevel(logging.CRITICAL)  # what goes wrong is meant to
    begun = time.monotonic()
    rig = Rig(timescale)
    todo = [*cells, *again(cells, share, seed)]
    console.print(f"{len(cells)} cells, {len(todo) - len(cells)} of them twice (seed {seed})")
    done = 0

    def say(result: Result) -> None:
        nonlocal done
        done += 1
        mark = "ok    " if result.passed else "[red]FAILED[/red]"
        console.print(f"{done:4} {mark} {result.seconds:6.2f} s  {result.name}: {result.outcome}", soft_wrap=True)
        for problem in result.problems:
            console.print(f"       {problem}", markup=False, soft_wrap=True)
        if not result.passed and result.error:
            console.print(f"       said: {result.error}", markup=False, soft_wrap=True)

    try:
        rig.learn_answers()
        results = Suite(rig, say).run(todo)
    finally:
        rig.close()
    failed = sum(not result.passed for result in results)
    console.print(f"{len(results)} runs in {time.monotonic() - begun:.0f} s, {failed} failed")
    return results
