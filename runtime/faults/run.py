"""The whole suite, as the command runs it: alone, or in several processes that each have a share of the cells."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from elasticfsm.errors import ElasticError

from .cells import Cell
from .result import Result
from .rig import Rig
from .suite import Suite, again


def run(
    cells: list[Cell], timescale: float, share: float, seed: int, jobs: int = 1, within: float = float("inf")
) -> list[Result]:
    """Run cells, and a share of them again; says a line for each. Blocks; whatever happens, no process is left.

    What does not begin `within` so many seconds is left out.
    """
    console = Console(highlight=False)
    begun = time.monotonic()
    todo = [*cells, *again(cells, share, seed)]
    console.print(f"{len(cells)} cells, {len(todo) - len(cells)} of them twice (seed {seed})")
    results = _alone(todo, timescale, within, console) if jobs == 1 else _together(todo, timescale, within, jobs)
    failed = sum(not result.passed for result in results)
    console.print(f"{len(results)} runs in {time.monotonic() - begun:.0f} s, {failed} failed")
    return results


def _alone(todo: Sequence[Cell], timescale: float, within: float, console: Console) -> list[Result]:
    logging.getLogger("elasticfsm").setLevel(logging.CRITICAL)  # what goes wrong is meant to
    rig = Rig(timescale)
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
        return Suite(rig, say).run(todo, within)
    finally:
        rig.close()


def _together(todo: Sequence[Cell], timescale: float, within: float, jobs: int) -> list[Result]:
    """Each process gets every `jobs`-th pair of cells, so that growth and shrinking stay in turn."""
    up = [cell for cell in todo if cell.operation == "scale_up"]
    down = [cell for cell in todo if cell.operation == "scale_down"]
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        processes = []
        for number in range(jobs):
            mine = Path(scratch) / f"cells-{number}.json"
            mine.write_bytes(msgspec.json.encode([*up[number::jobs], *down[number::jobs]]))
            command = [sys.executable, "-m", __spec__.name, str(mine), str(timescale), str(within)]
            processes.append((mine, subprocess.Popen(command, stdin=subprocess.DEVNULL)))
        try:
            for _, process in processes:
                process.wait()
        finally:
            for _, process in processes:
                process.terminate()
                process.wait(60)
        results = []
        for mine, process in processes:
            if process.returncode != 0:
                raise ElasticError(f"a process of the suite ended with status {process.returncode}: its cells are lost")
            results += msgspec.json.decode(mine.with_suffix(".results").read_bytes(), type=list[Result])
        return results


def main(given: str, timescale: str, within: str) -> None:
    """One of the processes."""
    todo = msgspec.json.decode(Path(given).read_bytes(), type=list[Cell])
    results = _alone(todo, float(timescale), float(within), Console(highlight=False))
    Path(given).with_suffix(".results").write_bytes(msgspec.json.encode(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
