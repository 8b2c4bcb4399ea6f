"""Faults that tests put into an engine on purpose: wrong weights that nothing else notices, workers that fail."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from elasticfsm.errors import TransferError

from ..deadline import Cancelled
from ..experts import placing
from ..experts.placement import EMPTY, Placement
from ..experts.plan import LoadArray
from ..experts.policy.settings import Policy
from ..experts.rebalance import Experts
from ..experts.state import ExpertState, Staged
from ..weights.bindings import FLAVOURS
from .model import Model
from .transfer_faults import IN_FLIGHT, READER, SOURCE, wounded

FAULTS = (
    "swap-experts",
    "drop-update",
    "worker-fails",
    "worker-exits",
    "worker-never",
    "worker-hangs",
    "slow-apply",
    "other-ties",
    "no-nixl",
)
HOLD = "hold="  # followed by a directory
HOLD_SECONDS = 15.0


def swap_experts(model: Model, layer: int = 1, slots: tuple[int, int] = (0, 1)) -> None:
    """Swap the weights of two expert slots of one layer."""
    first, second = (model.expert_slot(layer, slot) for slot in slots)
    for one, other in zip(first, second, strict=True):
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)


class DroppingExperts(Experts):
    """Experts of which the first row of every layer that a rebalance brings is never stored."""

    def store(self, layer: int, row: Staged) -> None:
        """Store all rows but the first of each layer."""
        staged = self._state.staged
        if staged and row is not staged[0]:
            super().store(layer, row)


class FailingExperts(Experts):
    """Experts of which the first reads fail: two with an error, or one that would end its thread, or all of them."""

    error: type[BaseException] = TransferError
    times: int = 2
    _reads = itertools.count()

    def _read(self, cancelled: Cancelled) -> None:
        if next(self._reads) < self.times:
            raise self.error("injected")
        super()._read(cancelled)


class ExitingExperts(FailingExperts):
    """The worker's thread is told to end."""

    error = SystemExit
    times = 1


class NeverExperts(FailingExperts):
    """No read ever succeeds."""

    times = sys.maxsize


class HangingExperts(Experts):
    """The worker enters a read and never comes back, whatever it is told."""

    def read(self, role: str = "engine", cancelled: Cancelled = None) -> None:
        """Wait for what never comes."""
        threading.Event().wait()


class SlowExperts(Experts):
    """Rows are put in place so slowly that a worker could have gone on with other ones meanwhile."""

    def store(self, layer: int, row: Staged) -> None:
        """Wait, and store."""
        time.sleep(0.1)
        super().store(layer, row)


class OtherTies(Experts):
    """This engine would break ties between equal loads the other way round than its peers do."""

    def __init__(self, state: ExpertState, cancelled: Cancelled = None) -> None:
        super().__init__(state, cancelled)
        usual = vars(placing)["plan"]

        def turned(current: Placement, loads: LoadArray, allowed: Iterable[int] | None, policy: Policy) -> Placement:
            """The same with the experts numbered from behind."""
            rows = current.physical_to_logical
            last = current.experts - 1
            mirrored = current.with_rows(np.where(rows == EMPTY, EMPTY, last - rows))
            found = usual(mirrored, loads[:, ::-1].copy(), allowed, policy)
            if found is mirrored:
                return current
            rows = found.physical_to_logical
            return current.with_rows(np.where(rows == EMPTY, EMPTY, last - rows))

        vars(placing)["plan"] = turned  # of this process: every engine has its own


class HoldingExperts(Experts):
    """Experts of which a layer stays in flight until a file says that it may land.

    A layer K without a file `go-K` in the directory says `layer-K` there and waits.
    """

    directory: Path

    def read(self, role: str = "engine", cancelled: Cancelled = None) -> None:
        """Wait for the file, and read."""
        layer, end = self._state.pending[0], time.monotonic() + HOLD_SECONDS
        while not (self.directory / f"go-{layer}").exists() and time.monotonic() < end:
            (self.directory / f"layer-{layer}").touch()
            time.sleep(0.01)
        super().read(role, cancelled)


def experts_with(faults: Collection[str], engine: str) -> type[Experts]:
    """The experts adapter of an engine under these faults: layers are held on engine e0, all else is on e1 only."""
    wounds = next((fault.removeprefix(IN_FLIGHT) for fault in faults if fault.startswith(IN_FLIGHT)), "")
    if wounds and engine in (SOURCE, READER):
        return type("WoundedExperts", (wounded(engine),), {"directory": Path(wounds)})
    held = next((fault.removeprefix(HOLD) for fault in faults if fault.startswith(HOLD)), "")
    if held and engine == "e0":
        return type("HoldingExperts", (HoldingExperts,), {"directory": Path(held)})
    broken: dict[str, type[Experts]] = {
        "drop-update": DroppingExperts,
        "worker-fails": FailingExperts,
        "worker-exits": ExitingExperts,
        "worker-never": NeverExperts,
        "worker-hangs": HangingExperts,
        "slow-apply": SlowExperts,
        "other-ties": OtherTies,
    }
    chosen = [kind for name, kind in broken.items() if name in faults and engine == "e1"]
    return chosen[0] if chosen else Experts


def hide_nixl(faults: Collection[str], engine: str) -> None:
    """Make the import of NIXL fail on engine e1, if that is wanted."""
    if "no-nixl" in faults and engine == "e1":
        loaded = [name for name in sys.modules if name.partition(".")[0] in FLAVOURS]
        sys.modules.update(dict.fromkeys([*FLAVOURS, *loaded]))  # type: ignore[arg-type]
