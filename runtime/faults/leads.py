"""States that nothing but another fault leads to: which one that is. Their cells have two faults, this one first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .fault import Fault, Kind


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """The first fault of a cell with two, on engines of `role` (empty: that of the cell); `seconds` are scaled.

    `cancel`: the operation is cancelled as soon as it has happened.
    """

    kind: Kind
    machine: str
    state: str = ""
    message: str = ""
    role: str = ""
    seconds: float = 0.0
    cancel: bool = False

    def fault(self, engines: tuple[str, ...], timescale: float, then: Fault) -> Fault:
        """What is armed for it; when it has happened, `then` waits in its place."""
        return Fault(
            kind=self.kind,
            machine=self.machine,
            state=self.state,
            message=self.message,
            engines=engines,
            seconds=self.seconds * timescale,
            then=then,
        )


_LEAVES = Lead(kind="kill", machine="scale_down.removing", state="voting", role="removing")
LEADS: Mapping[tuple[str, str], Lead] = {
    ("rebalance.worker", "losing"): Lead(kind="exception", machine="rebalance.worker", state="reading"),
    ("rebalance.main", "ceasing"): Lead(kind="delay", machine="rebalance.worker", state="reading", seconds=30.0),
    ("rebalance.main", "withdrawing"): Lead(kind="exception", machine="rebalance.main", state="confirming"),
    ("rebalance.main", "off"): Lead(kind="exception", machine="rebalance.main", state="planning"),
    ("rebalance.main", "clearing"): Lead(  # all leave `gathering` after one step, unless somebody never comes there
        kind="exception", machine="rebalance.main", state="stopping", role="removing", cancel=True
    ),
    ("scale_up.new", "parting"): Lead(kind="exception", machine="scale_up.new", state="switching"),
    ("scale_up.coordinator", "releasing"): Lead(
        kind="exception", machine="scale_up.coordinator", state="completing", role="coordinator"
    ),
    ("scale_down.coordinator", "recalling"): Lead(
        kind="drop", machine="scale_down.removing", message="left", role="removing", seconds=75.0
    ),
    ("scale_down.remaining", "rejoining"): _LEAVES,
    ("scale_down.remaining", "resuming"): _LEAVES,
}
