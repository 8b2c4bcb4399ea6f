"""How fast a run is: limits of time grow with its steps, so that a busy machine is not taken for a fault."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from ..router import Stream

QUIET = 0.03  # seconds from one token of a request to the next, up to which limits stay as they are
MOST = 3.0
KEPT = 400  # gaps that are looked at: those of the last few cells


class Pace:
    """Looks at the tokens of requests; `factor` is what limits are multiplied by."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=KEPT)

    def saw(self, streams: Iterable[Stream]) -> None:
        """Note how tokens came, one a step."""
        for stream in streams:
            self._gaps.extend(after - before for before, after in pairwise(stream.times))

    @property
    def factor(self) -> float:
        """1 on a machine that is quiet enough, more when the median step is slower."""
        return min(max(median(self._gaps) / QUIET, 1.0), MOST) if self._gaps else 1.0
