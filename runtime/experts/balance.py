"""How even the load of the ranks is: the mean over the busiest, summed over layers, at the loads of the last plan."""

from __future__ import annotations

from .placement import Placement
from .plan import LoadArray
from .policy.bounds import busiest

MILLION = 1_000_000


class Balance:
    """Computed anew when loads or placement are others than at the last question. Any thread."""

    def __init__(self) -> None:
        self._of: tuple[LoadArray | None, Placement | None] = (None, None)
        self._ppm = 0

    def ppm(self, loads: LoadArray | None, placement: Placement | None) -> int:
        """Millionths; 0 while no loads were reduced, or they were of other engines than the placement is for."""
        if loads is None or placement is None:
            return 0
        if self._of[0] is not loads or self._of[1] is not placement:
            rows = placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)
            peak = float(busiest(rows, loads).sum())
            mean = float(loads.sum()) / placement.world_size
            self._of, self._ppm = (loads, placement), int(MILLION * mean / peak) if peak else MILLION
        return self._ppm
