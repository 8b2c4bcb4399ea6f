"""What an operator may set of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bounded", "balanced"]


@dataclass(frozen=True)
class Policy:
    """How eager the planner is.

    `tolerance` and `min_gain` are fractions of the mean load per rank: the busiest rank may exceed the mean by the
    first, and a moved row must take at least the second off the overloaded ranks. `budget_rows` bounds the rows that
    one plan moves for balance's sake (0: no bound; orphans and leaving ranks are served in any case). `nodes` and
    `groups` are for `balanced` only.
    """

    tolerance: float = 0.03
    min_gain: float = 0.008
    kind: Kind = "bounded"
    budget_rows: int = 0
    nodes: int = 1
    groups: int = 1
