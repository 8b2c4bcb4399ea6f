"""Where the time of a growth goes: from the request to the end of the operation, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...demo.gaps import Window
from . import journal

STEPS = ("groups.create", "cache.agree", "weights.read", "rehearsal.post", "rehearsal.wait", "graphs.capture")


def growths(directory: Path, windows: Sequence[Window]) -> list[dict[str, Any]]:
    """Every growth of a run: seconds in all and by phase, as the new engine that came last saw them.

    "process" is the time until a new engine's journal begins (start, imports, its memory), "hello" until its first
    step, "switch" from the vote until all have switched; "rest" is what lies between the others.
    """
    found = []
    for window in windows:
        change, _, phase = window.name.rpartition(" ")
        before, _, after = change.partition(" -> ")
        switch = next((each for each in windows if each.name == f"{change} switch" and each.begin == window.end), None)
        if phase == "preparing" and after and int(after) > int(before) and switch is not None:
            phases = split(directory, window.begin, window.end) | {"switch": switch.end - switch.begin}
            total = switch.end - window.begin
            found.append({"change": change, "total_s": total, "phases": _with_rest(phases, total)})
    return found


def split(directory: Path, begin: float, end: float) -> dict[str, float]:
    """Seconds by phase of the engine whose journal began last between two moments; empty when none did."""
    born = {path.stem: next(journal.events(directory, path.stem), None) for path in directory.glob("*.jsonl")}
    new = {engine: event["t"] / 1e9 for engine, event in born.items() if event and begin < event["t"] / 1e9 < end}
    if not new:
        return {}
    engine = max(new, key=lambda name: new[name])
    begun, phases = 0.0, {"process": new[engine] - begin}
    for event in journal.events(directory, engine):
        if not event.get("machine", "").startswith("scale_") or event["t"] / 1e9 > end:
            continue
        if event["event"] == "step.begin":
            begun = event["t"] / 1e9
            phases.setdefault("hello", begun - new[engine])
        elif event["event"] == "step.end":
            name = event["step"].partition(":")[0]
            if name in STEPS:
                phases[name] = phases.get(name, 0.0) + event["t"] / 1e9 - begun
    return phases


def _with_rest(phases: dict[str, float], total: float) -> dict[str, float]:
    return phases | {"rest": total - sum(phases.values())}


def shares(phases: dict[str, float], total: float) -> str:
    """Phases in per cent of the whole, largest first."""
    ordered = sorted(phases.items(), key=lambda phase: -phase[1])
    return ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in ordered if seconds > 0.005 * total)
