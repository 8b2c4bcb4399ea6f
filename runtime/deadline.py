"""A bounded, cancellable wait: the one place where "how much longer" is decided."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elasticfsm.errors import DeadlineExpired, GroupCut

Cancelled = threading.Event | Callable[[], bool] | None

SLICE = 0.1  # seconds that a wait may last before it looks at its deadline and its cancellation again
_LEAST = 0.001  # torch counts in milliseconds, and a wait of 0 ms is one without end


class Deadline:
    """`within` seconds from now on this process's monotonic clock, for one wait that `what` describes in errors."""

    def __init__(self, within: float, what: str, cancelled: Cancelled = None) -> None:
        self.within = within
        self.what = what
        self._end = time.monotonic() + within
        self._cancelled = cancelled.is_set if isinstance(cancelled, threading.Event) else cancelled

    @property
    def cancelled(self) -> Cancelled:
        """Who is asked whether the wait was given up."""
        return self._cancelled

    def left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self._end - time.monotonic())

    def slice(self, longest: float = SLICE) -> float:
        """Seconds to wait before asking again; raises GroupCut when cancelled, DeadlineExpired when over."""
        if self._cancelled is not None and self._cancelled():
            raise GroupCut(f"{self.what}: the wait was cancelled")
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExpired(f"{self.what}: nothing came within {self.within:g} s")
        return max(_LEAST, min(left, longest))
