"""A link between two ends: every message arrives once and in order, although single ones are lost, doubled or late.

An end has a number of its own, new at every start. A message that must arrive has a number in the stream from one end
to the other; it is kept and sent again until the other end has acknowledged it. What comes twice, or before its turn,
is dropped and counted. An end that hears of another peer than before (it was restarted) begins a new stream.

Pure: no sockets, no clock of its own, no lock. Both directions belong to the thread that owns the sockets.
"""

from __future__ import annotations

import secrets
import struct
from collections import Counter, deque
from typing import NamedTuple

FIRST = 0.3  # seconds without an acknowledgement after which a message is sent again
LONGEST = 2.0  # the pause doubles up to this
GIVE_UP = 120.0  # seconds without any acknowledgement after which the peer counts as gone

_LAYOUT = struct.Struct("!QQII")
_UNTRACKED = 0


class Envelope(NamedTuple):
    """Who sends to whom, the number of the message (0: it may be lost), and the last number received from there."""

    source: int
    target: int
    number: int
    acknowledged: int

    def packed(self) -> bytes:
        """As bytes."""
        return _LAYOUT.pack(*self)


def unpacked(data: bytes) -> Envelope | None:
    """The envelope in some bytes; None when they are none."""
    return Envelope(*_LAYOUT.unpack(data)) if len(data) == _LAYOUT.size else None


def new_end() -> int:
    """A number for an end that starts."""
    return secrets.randbits(63) + 1


class Link:
    """One end's view of one peer."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.dropped: Counter[str] = Counter()
        self.owes = False  # something came that is not acknowledged yet
        self._peer = 0
        self._received = 0
        self._sent = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._pause = FIRST
        self._again = float("inf")
        self._heard = 0.0
        self.met = 0.0  # when the peer was heard of last

    def stamp(self, data: bytes, tracked: bool, now: float) -> bytes:
        """The envelope for a message that goes out now; if it is tracked, the message is kept."""
        number = _UNTRACKED
        if tracked:
            self._sent += 1
            number = self._sent
            if not self._kept:
                self._heard, self._pause = now, FIRST
                self._again = now + FIRST
            self._kept.append((number, data))
        return self._envelope(number)

    def accept(self, envelope: Envelope, now: float) -> bool:
        """Note what an envelope says; whether the message in it is to be delivered."""
        self.met = now
        if envelope.source != self._peer:
            self._meet(envelope.source)
        if envelope.target == self.end:
            self._acknowledged(envelope.acknowledged, now)
        if envelope.number == _UNTRACKED:
            return True
        self.owes = True
        if envelope.target not in (self.end, 0):
            self.dropped["another end"] += 1
        elif envelope.number <= self._received:
            self.dropped["twice"] += 1
        elif envelope.number > self._received + 1:
            self.dropped["out of turn"] += 1
        else:
            self._received += 1
            return True
        return False

    def due(self, now: float) -> list[tuple[bytes, bytes]]:
        """What is to be sent again now, as (envelope, message), in order."""
        if not self._kept or now < self._again:
            return []
        if now - self._heard > GIVE_UP:
            self.dropped["never acknowledged"] += len(self._kept)
            self._kept.clear()
            return []
        self._pause = min(2 * self._pause, LONGEST)
        self._again = now + self._pause
        return [(self._envelope(number), data) for number, data in self._kept]

    def receipt(self) -> bytes:
        """An envelope that only acknowledges."""
        return self._envelope(_UNTRACKED)

    @property
    def waiting(self) -> int:
        """How many messages are not acknowledged yet."""
        return len(self._kept)

    def _envelope(self, number: int) -> bytes:
        self.owes = False
        return Envelope(self.end, self._peer, number, self._received).packed()

    def _meet(self, peer: int) -> None:
        if self._peer:  # another peer than before: nothing of the old streams means anything to it
            self.dropped["for another end"] += len(self._kept)
            self._kept.clear()
            self._sent = 0
        self._peer, self._received = peer, 0

    def _acknowledged(self, number: int, now: float) -> None:
        moved = False
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()
            moved = True
        if moved:
            self._heard, self._pause = now, FIRST
            self._again = now + FIRST
