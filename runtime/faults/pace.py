"""How fast a run is: limits of time grow with its steps, so that a busy machine is not taken for a fault."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from ..router import Stream

QUIET = 0.03  # seconds from one token of a request to the next, up to which limits stay as they are
MOST = 3.0
KEPT = 400  # gaps that are looked at: those of the last few cells


def crowded(seconds: float = 0.05) -> float:
    """How much longer so many seconds of work take here than they would alone."""
    begun, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < seconds:
        pass
    return (time.perf_counter() - begun) / seconds


class Pace:
    """Looks at the tokens of requests; `factor` is what limits are multiplied by, `first` before a token was seen."""

    def __init__(self, first: float = 1.0) -> None:
        self._gaps: deque[float] = deque(maxlen=KEPT)
        self._first = first

    def saw(self, streams: Iterable[Stream]) -> None:
        """Note how tokens came, one a step."""
        for stream in streams:
            self._gaps.extend(after - before for before, after in pairwise(stream.times))

    @property
    def factor(self) -> float:
        """1 on a machine that is quiet enough, more when the median step is slower."""
        return min(max(median(self._gaps) / QUIET if self._gaps else self._first, 1.0), MOST)
