"""Wakes between engines, each sent again with every heartbeat until the wave that it starts has made a step.

Whoever enters a step from idle waits in a collective for its peers; a wake that is lost would keep it there. A step of
the wave that ended has had all members in it, so nobody has to be woken any more. Receivers drop wakes of old waves.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from . import wire
from .transport import Mailbox

Moment = tuple[int, int, int]  # generation, wave, step


class Wakes:
    """Where peers may be woken, and the last wake of this engine. Any thread."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._addresses: dict[str, str] = {}
        self._last: tuple[Moment, wire.Wake, tuple[str, ...]] | None = None
        self._lock = threading.Lock()

    def learn(self, addresses: Mapping[str, str]) -> None:
        """From now on these are the known engines; what leads to any other is closed."""
        with self._lock:
            self._addresses = dict(addresses)
        self._mailbox.keep(addresses.values())

    def send(self, peers: Collection[str], wake: wire.Wake, now: Moment) -> None:
        """Wake peers for a wave that has made no step yet."""
        with self._lock:
            targets = tuple(self._addresses[peer] for peer in peers if peer in self._addresses)
            self._last = (now, wake, targets)
        self._send(wake, targets)

    def again(self, now: Moment) -> None:
        """Send the last wake again, unless a step has ended since."""
        with self._lock:
            last = self._last
            if last is None or last[0] != now:
                self._last = None
                return
        self._send(last[1], last[2])

    def _send(self, wake: wire.Wake, targets: tuple[str, ...]) -> None:
        for address in targets:
            self._mailbox.wake(address, wake)
