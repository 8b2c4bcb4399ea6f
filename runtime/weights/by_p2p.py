"""Weights sent over a process group: both ends know the schedule, so every piece is one send and one receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from torch import Tensor

from elasticfsm.errors import GroupError, TransferError

from ..deadline import Cancelled, Deadline
from .transfer import Kind, Offer, Piece, Region, as_bytes, decode_offer, merged, run_of


class Pending(Protocol):
    """An operation under way in a process group."""

    def wait(self, within: float | None = None, cancelled: Cancelled = None) -> None:
        """Block until done, at most `within` seconds; raises GroupError."""
        ...


class Peers(Protocol):
    """What is needed of a process group: point-to-point, posted."""

    def post_send(self, t: Tensor, peer: int) -> Pending:
        """Begin to send to a rank."""
        ...

    def post_recv(self, t: Tensor, peer: int) -> Pending:
        """Begin to receive from a rank."""
        ...


class P2pTransfer:
    """Transfer over the group given to `use`; nothing is registered and no peer has to be connected."""

    kind: Kind = "p2p"

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.moved: dict[str, int] = {"p2p": 0}
        self._regions: dict[str, Region] = {}
        self._group: Peers | None = None
        self._members: list[str] = []
        self._quarantine: list[Sequence[Piece]] = []

    def use(self, group: Peers, members: Sequence[str]) -> None:
        """Send over this group from now on; `members` are its engine ids in rank order."""
        self._group, self._members = group, list(members)

    def offer(self, region: str, tensors: Sequence[Tensor]) -> None:
        """See Transfer.offer; only the layout is noted."""
        self._regions[region] = Region(region, merged([run_of(tensor) for tensor in tensors]))

    def describe(self, regions: Sequence[str]) -> bytes:
        """See Transfer.describe; without addresses, which are nobody's business here."""
        return msgspec.msgpack.encode(Offer(self.engine, self.kind, "", b"", []))

    def connect(self, peer: str, offer: bytes, deadline: Deadline) -> None:
        """See Transfer.connect; only checks that the peer sends by p2p too."""
        decode_offer(offer, peer, self.kind)

    def exchange(self, incoming: Sequence[Piece], outgoing: Sequence[Piece], deadline: Deadline) -> None:
        """See Transfer.exchange; posts everything, then waits."""
        group = self._group
        if group is None:
            raise TransferError("p2p has no group to send over; `use` one first")
        try:
            posted = [group.post_recv(as_bytes(piece.tensor), self._rank(piece.peer)) for piece in incoming]
            posted += [group.post_send(as_bytes(piece.tensor), self._rank(piece.peer)) for piece in outgoing]
            for pending in posted:
                pending.wait(deadline.left())
        except GroupError as error:
            self._quarantine.append(incoming)
            raise TransferError(f"engine {self.engine} could not exchange {len(incoming)} pieces: {error}") from error
        self.moved["p2p"] += sum(as_bytes(piece.tensor).numel() for piece in incoming)

    def withdraw(self, region: str) -> None:
        """See Transfer.withdraw."""
        self._regions.pop(region, None)

    def forget(self, peer: str) -> None:
        """See Transfer.forget; there is nothing."""

    def pump(self) -> None:
        """See Transfer.pump; a group needs none."""

    def renew(self) -> None:
        """See Transfer.renew; a group has no names to renew."""

    def close(self) -> None:
        """Let go of the group and of what was quarantined (the group is closed by now)."""
        self._regions.clear()
        self._quarantine.clear()
        self._group = None

    def _rank(self, peer: str) -> int:
        if peer not in self._members:
            raise TransferError(f"engine {peer} is not in the group of {self._members}")
        return self._members.index(peer)
