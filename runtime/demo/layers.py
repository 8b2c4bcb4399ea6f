"""How many layers of experts moved in each phase of a run, from the journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from elasticfsm.errors import ElasticError
from elasticfsm.journal import read

from .gaps import Window


class Moved(msgspec.Struct, kw_only=True):
    """What one window showed: rebalances that came to their end, and layers that were put in place."""

    window: str
    rebalances: int
    layers: int


def count(directory: Path, windows: Sequence[Window]) -> list[Moved]:
    """One Moved per window. All engines of a generation apply the same layers: the one that did most is counted."""
    try:
        journals = read(directory)
    except ElasticError:
        return []
    ends = {
        engine: [(event["t"] / 1e9, event.get("answer")) for event in events if _settled(event)]
        for engine, events in journals.items()
    }
    return [_moved(window, ends) for window in windows]


def _settled(event: dict[str, object]) -> bool:
    return event["event"] == "step.end" and str(event.get("step", "")).startswith("experts.settle")


def _moved(window: Window, ends: dict[str, list[tuple[float, object]]]) -> Moved:
    counts = [
        Counter(answer for moment, answer in seen if window.begin <= moment < window.end) for seen in ends.values()
    ]
    most = max(counts, key=lambda each: each["more"] + each["last"], default=Counter[object]())
    return Moved(window=window.name, rebalances=most["last"], layers=most["more"] + most["last"])
