"""What the engines count, as their heartbeats told it last; also of those that have ended."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from .. import wire
from ..experts.placement import Placement

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
            self.placement = Placement.from_wire(status.placement)

    @property
    def experts_moved(self) -> int:
        """Slots that got another expert, on all engines that there were."""
        return sum(each.get("experts_moved", 0) for each in list(self.counters.values()))


def _nobody(seconds: float) -> None:
    """Where a pause is told when nobody asked for it."""
