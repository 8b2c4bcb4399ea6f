"""What the engines count, as their heartbeats told it last; also of those that have ended."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from .. import wire
from ..experts.placement import EMPTY, Placement

SAMPLES = 20_000  # step counters kept for reports, 5 a second from each engine


class Counts:
    """By engine id, never by rank: ranks are renumbered. Written by the hub's thread, read by any."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, str, int]] = deque(maxlen=SAMPLES)
        self.moved: dict[str, Counter[str]] = {}
        self.violations: dict[str, int] = {}
        self.counters: dict[str, dict[str, int]] = {}
        self.placement: Placement | None = None  # as rank 0 said last
        self.paused: Callable[[float], None] = _nobody  # hears of every pause at a switch, in seconds
        self.experts_moved = 0  # slots that got another expert
        self.rebalanced = 0.0  # wall time at which the last rebalance came to its end

    def take(self, status: wire.Status) -> None:
        """Note a heartbeat."""
        engine = status.sender
        self.samples.append((time.monotonic(), engine, status.step))
        moved = {name.removeprefix("bytes_"): n for name, n in status.counters.items() if name.startswith("bytes_")}
        self.moved[engine] = Counter(moved)
        before = self.counters.get(engine, {})
        if status.counters.get("switches", 0) > before.get("switches", 0):
            self.paused(status.counters["pause_us"] / 1e6)
        if status.counters.get("rebalances", 0) > before.get("rebalances", 0):
            self.rebalanced = time.time()
        self.violations[engine] = status.counters.get("violations", 0)
        self.counters[engine] = dict(status.counters)
        if status.placement is not None:
            fresh = Placement.from_wire(status.placement)
            self.experts_moved += _moved(self.placement, fresh)
            self.placement = fresh


def _moved(before: Placement | None, after: Placement) -> int:
    """Slots that hold another expert than before; a change of size renumbers them and counts for nothing."""
    if before is None or before.physical_to_logical.shape != after.physical_to_logical.shape:
        return 0
    was, now = before.physical_to_logical, after.physical_to_logical
    return int(((was != now) & (now != EMPTY)).sum())


def _nobody(seconds: float) -> None:
    """Where a pause is told when nobody asked for it."""
