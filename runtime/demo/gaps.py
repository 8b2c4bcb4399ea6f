"""How long streams stood still: the longest gap between two tokens in each phase, in units of the median step."""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from ..router import Stream


class Window(msgspec.Struct, kw_only=True):
    """A phase of the run: [begin, end) in monotonic seconds, and how many engines serve in it."""

    name: str
    begin: float
    end: float
    size: int


class Gap(msgspec.Struct, kw_only=True):
    """What one window showed: intervals between tokens of a stream, in milliseconds and in median steps."""

    window: str
    seconds: float
    size: int
    tokens: int
    median_ms: float
    longest_ms: float
    longest_steps: float


def intervals(streams: Iterable[Stream]) -> list[tuple[float, float]]:
    """(end, length) of every interval between two tokens of one stream, in seconds, by end."""
    found = []
    for stream in streams:
        times = list(stream.times)
        found += [(after, after - before) for before, after in itertools.pairwise(times)]
    return sorted(found)


def measure(streams: Iterable[Stream], windows: Sequence[Window]) -> list[Gap]:
    """One Gap per window. The unit is the median interval of the steady window of the same size, else its own.

    An interval counts in every window that it touches.
    """
    gaps = intervals(streams)
    units = _units(gaps, windows)
    return [_gap(window, gaps, units.get(window.size, 0.0)) for window in windows]


def _touching(gaps: list[tuple[float, float]], window: Window) -> list[float]:
    first = bisect_right(gaps, (window.begin, float("inf")))
    return [length for end, length in gaps[first:] if end - length < window.end]


def _units(gaps: list[tuple[float, float]], windows: Sequence[Window]) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for window in windows:
        if window.name.startswith("steady"):
            found.setdefault(window.size, []).extend(_touching(gaps, window))
    return {size: statistics.median(lengths) for size, lengths in found.items() if lengths}


def _gap(window: Window, gaps: list[tuple[float, float]], unit: float) -> Gap:
    lengths = _touching(gaps, window)
    median = statistics.median(lengths) if lengths else 0.0
    longest = max(lengths, default=0.0)
    unit = unit or median
    return Gap(
        window=window.name,
        seconds=window.end - window.begin,
        size=window.size,
        tokens=len(lengths),
        median_ms=1000 * median,
        longest_ms=1000 * longest,
        longest_steps=longest / unit if unit else 0.0,
    )
