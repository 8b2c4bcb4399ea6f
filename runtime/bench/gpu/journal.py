"""What journals say about time: forward steps between two moments, and how long each step of an operation took."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...demo.gaps import Window
from .machine import quantile


def events(directory: Path, engine: str) -> Iterator[dict[str, Any]]:
    """The events of one engine; the last line of one that was killed may be cut off."""
    for line in (directory / f"{engine}.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def steps(directory: Path, engine: str = "e0") -> list[tuple[float, float]]:
    """(end, milliseconds) of every forward step of an engine that followed another one, in monotonic seconds."""
    ends = [event["t"] / 1e9 for event in events(directory, engine) if event["event"] == "agreed"]
    return [(end, 1000 * (end - begin)) for begin, end in pairwise(ends)]


def within(found: Sequence[tuple[float, float]], begin: float, end: float) -> list[float]:
    """The milliseconds of the steps that ended between two moments."""
    return [took for moment, took in found if begin <= moment < end]


def preparing(directory: Path, windows: Sequence[Window]) -> dict[str, Any]:
    """Steps while a change was prepared beside steps alone at the same size, pooled over all changes of a size.

    The first steady window of the run is left out: engines warm up in it.
    """
    found = steps(directory)
    result: dict[str, Any] = {}
    for size in sorted({window.size for window in windows}):
        alone = [t for w in windows[1:] if w.name == f"steady {size}" for t in within(found, w.begin, w.end)]
        beside = [
            t for w in windows if w.name.endswith("preparing") and w.size == size for t in within(found, w.begin, w.end)
        ]
        if len(alone) < 3 or len(beside) < 3:
            continue
        unit = statistics.median(alone)
        result[str(size)] = {
            "alone_ms": unit,
            "alone_p99": quantile(alone, 0.99) / unit,
            "alone_max": max(alone) / unit,
            "beside_p50": statistics.median(beside) / unit,
            "beside_p99": quantile(beside, 0.99) / unit,
            "beside_max": max(beside) / unit,
            "steps": [len(alone), len(beside)],
        }
    return result


def pauses(directory: Path, windows: Sequence[Window]) -> list[dict[str, Any]]:
    """For every change: the longest step from the vote to its end, in median steps of the larger size alone."""
    found = steps(directory)
    units = {
        size: statistics.median(alone)
        for size in {window.size for window in windows}
        if (alone := [t for w in windows[1:] if w.name == f"steady {size}" for t in within(found, w.begin, w.end)])
    }
    result = []
    for window in windows:
        during = within(found, window.begin, window.end)
        if window.name.endswith("switch") and during and window.size in units:
            longest = max(during)
            result.append({"change": window.name, "longest_ms": longest, "steps": longest / units[window.size]})
    return result


def phases(directory: Path, engine: str) -> list[tuple[str, float]]:
    """(step, seconds) of every step of an operation's own machine on one engine, in order."""
    begun: dict[tuple[str, str], int] = {}
    result = []
    for event in events(directory, engine):
        if not event.get("machine", "").startswith("scale_"):
            continue
        key = (event["machine"], event.get("step", ""))
        if event["event"] == "step.begin":
            begun[key] = event["t"]
        elif event["event"] == "step.end" and key in begun:
            result.append((key[1], (event["t"] - begun.pop(key)) / 1e9))
    return result
