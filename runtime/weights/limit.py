"""How long one wait may last: our own deadline (NIXL has none) and the question whether it was cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticfsm.errors import TransferError

POLL_SECONDS = 0.0005


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Limit:
    """A point on this process's monotonic clock, and a callable that says whether the operation was cancelled."""

    seconds: float
    cancelled: Callable[[], bool] = _never
    until: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "until", time.monotonic() + self.seconds)

    def left(self) -> float:
        """Return the seconds that remain, never negative."""
        return max(0.0, self.until - time.monotonic())

    def check(self, what: str) -> None:
        """Raise TransferError if the wait for `what` was cancelled or its time is up."""
        if self.cancelled():
            raise TransferError(f"{what}: cancelled while waiting")
        if time.monotonic() >= self.until:
            raise TransferError(f"{what}: not there after {self.seconds:g} s; the peer is dead, stopped or absent")

    def pause(self, what: str) -> None:
        """Check, then sleep for one polling interval."""
        self.check(what)
        time.sleep(POLL_SECONDS)
