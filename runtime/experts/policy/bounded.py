"""The policy `bounded`: least movement. Survivors stay; orphans first, then empty slots, then what pays for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..placement import IntArray
from .fill import fill
from .level import level
from .settings import Policy
from .tally import Bools, Tally, in_place, weights


def bounded(rows: IntArray, loads: npt.NDArray[Any], usable: Bools, policy: Policy) -> IntArray:
    """Return the next contents, int32 [layers, ranks, slots], of which -1 is empty.

    `rows` has the same shape, `loads` are counts [layers, experts], `usable` [ranks] tells which ranks may hold
    experts. Pure; equal input gives equal output on every CPU. In a layer without any load nothing moves for balance.
    Raises PlacementError when the usable ranks have fewer slots than there are experts.
    """
    tally = Tally(rows, weights(loads), usable)
    fill(tally)
    level(tally, policy, np.asarray(loads.any(axis=1)))
    return in_place(rows, tally.holds)
