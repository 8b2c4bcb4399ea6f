"""When the machine of an operation may start: not before what the one before it said was heard inside the engine.

A rebalance in the middle of a layer leaves words unread, and an operation may end meanwhile. A `drain` of the old one
would be answered to the new one, and its `spread` would set experts in motion while the new one counts on their rest.
The protocols are checked with empty mailboxes at their start; holding the first message back keeps that true, and
to the coordinator it is only a message that takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from elasticfsm.seat import Seat


class Beginning:
    """Knows how long the start of the running operation has waited, and whether it has to."""

    def __init__(self, operations: Collection[str], within: float, clock: Callable[[], float]) -> None:
        self._operations = frozenset(operations)
        self._within = within  # seconds; the machines that go on have deadlines of their own
        self._clock = clock
        self._since = clock()

    def begin(self) -> None:
        """An operation has been seated."""
        self._since = self._clock()

    def waits(self, seats: Iterable[Seat]) -> bool:
        """Whether one of these machines has unread letters of an operation, which can only be an earlier one."""
        if self._clock() - self._since > self._within:
            return False
        return any(sender.partition(".")[0] in self._operations for seat in seats for sender in seat.mail.senders())
