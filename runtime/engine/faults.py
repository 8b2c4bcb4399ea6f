"""Faults that tests put into an engine on purpose: wrong weights that nothing else notices, workers that fail."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Collection
from pathlib import Path

from elasticfsm.errors import TransferError

from ..deadline import Cancelled
from ..experts.rebalance import Experts
from ..experts.state import Staged
from ..weights.bindings import FLAVOURS
from .model import Model

FAULTS = ("swap-experts", "drop-update", "worker-fails", "worker-exits", "worker-never", "no-nixl")
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

    def read(self, role: str = "engine", cancelled: Cancelled = None) -> None:
        """Fail, or read."""
        if next(self._reads) < self.times:
            raise self.error("injected")
        super().read(role, cancelled)


class ExitingExperts(FailingExperts):
    """The worker's thread is told to end."""

    error = SystemExit
    times = 1


class NeverExperts(FailingExperts):
    """No read ever succeeds."""

    times = sys.maxsize


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
    held = next((fault.removeprefix(HOLD) for fault in faults if fault.startswith(HOLD)), "")
    if held and engine == "e0":
        return type("HoldingExperts", (HoldingExperts,), {"directory": Path(held)})
    broken: dict[str, type[Experts]] = {
        "drop-update": DroppingExperts,
        "worker-fails": FailingExperts,
        "worker-exits": ExitingExperts,
        "worker-never": NeverExperts,
    }
    chosen = [kind for name, kind in broken.items() if name in faults and engine == "e1"]
    return chosen[0] if chosen else Experts


def hide_nixl(faults: Collection[str], engine: str) -> None:
    """Make the import of NIXL fail on engine e1, if that is wanted."""
    if "no-nixl" in faults and engine == "e1":
        sys.modules.update(dict.fromkeys(FLAVOURS))  # type: ignore[arg-type]
