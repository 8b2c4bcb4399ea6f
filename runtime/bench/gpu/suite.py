"""Everything in one go: `one` GPU with several engines on it, `two` GPUs with one engine each. One table, one JSON."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from . import balance, cycles, experts, machine, switch, throughput, transfer
from .rows_of_table import Row, rows

Section = tuple[str, float, Callable[[], Any]]  # name, seconds it may need, what it does


EXPERT_CASES = ((64, 128), (128, 128), (256, 128), (128, 66), (64, 16))  # rows, slots


def one() -> list[Section]:
    """What one GPU shows."""
    return [
        ("copy_gbs", 5, machine.copy_gbs),
        ("experts", 5, lambda: [experts.compare(*case) for case in EXPERT_CASES]),
        ("empty_groups", 10, experts.empty_groups),
        ("switch2", 40, lambda: switch.run(2, seconds=70)),
        ("exact", 130, lambda: cycles.run((2, *(4, 2) * 5), seconds=0.8, dtype="float32")),
        ("cycles", 60, lambda: cycles.run((2, 4, 2), seconds=0.8)),
        ("eplb", 70, lambda: balance.run(seconds=8.0)),
        ("transfer", 30, lambda: transfer.run(60)),
        ("shape", 60, lambda: throughput.run(48, 16, 3.0, gpus=1, spread=0.0, back=False, new=24)),
        ("switch4", 50, lambda: switch.run(4, seconds=70)),
    ]


def two() -> list[Section]:
    """What two GPUs show."""
    return [
        ("copy_gbs", 5, lambda: machine.copy_gbs("cuda:0", "cuda:1")),
        ("transfer", 15, lambda: transfer.run(60)),
        ("throughput", 110, throughput.run),
        ("exact", 130, lambda: _two((1, *(2, 1) * 10), "float32")),
        ("cycles", 40, lambda: _two((1, 2, 1), "bfloat16")),
        ("throughput_nccl", 60, lambda: throughput.run(16, seconds=3.0, transfer="p2p")),
        ("switch2", 30, lambda: switch.run(2, seconds=60)),
    ]


def _two(path: tuple[int, ...], dtype: str) -> dict[str, Any]:
    return cycles.run(path, seconds=0.5, clients=2, gpus=2, slots=16, dtype=dtype)


def run(kind: str, out: Path, seconds: float, only: str = "") -> int:
    """Run the sections that fit into the time, print the table and write OUT after each; 0 if no bar was missed.

    A section that fails is a line of the table, not the end.
    """
    begun = time.monotonic()
    found: dict[str, Any] = {"machine": machine.describe(), "kind": kind, "command": " ".join(sys.argv), "seconds": {}}
    for name, needs, call in {"one": one, "two": two}[kind]():
        left = seconds - (time.monotonic() - begun)
        if only and name not in only.split(","):
            continue
        mark = time.monotonic()
        if left < needs / 2:
            found[name] = {"skipped": f"{left:.0f} s left, about {needs:g} needed"}
        else:
            print(f"[{mark - begun:5.0f} s] {name}", flush=True)
            try:
                found[name] = call()
            except Exception as error:  # whatever it was: the other sections still have something to say
                traceback.print_exc()
                found[name] = {"failed": f"{type(error).__name__}: {str(error)[-1500:]}"}
        found["seconds"][name] = time.monotonic() - mark
        out.write_text(json.dumps(found, indent=1, default=str))
    lines = rows(found)
    _show(found, lines)
    return int(any(line.verdict == "missed" for line in lines))


def _show(found: dict[str, Any], lines: list[Row]) -> None:
    told = found["machine"]
    title = f"{', '.join(told['gpus'])}; torch {told['torch']}, driver {told['driver']}, {told['date']}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("what", "found", "bar", ""):
        table.add_column(name)
    for line in lines:
        table.add_row(line.what, line.found, line.bar, line.verdict)
    Console(width=150).print(table)
