"""Weights sent over a process group: both ends know the schedule, so every piece is one send and one receive."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import torch
from torch import Tensor

from elasticfsm.errors import GroupError, TransferError

from ..deadline import Deadline
from .regions import Region, as_bytes, merged, run_of
from .transfer import Kind, Offer, Piece, Route, decode_offer


class P2pTransfer:
    """Transfer over the route of each exchange; nothing is registered and no peer has to be connected."""

    kind: Kind = "p2p"

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.moved: dict[str, int] = {"p2p": 0}
        self._regions: dict[str, Region] = {}
        self._quarantine: list[Piece] = []

    def offer(self, region: str, tensors: Sequence[Tensor]) -> None:
        """See Transfer.offer; only the layout is noted."""
        self._regions[region] = Region(region, merged([run_of(tensor) for tensor in tensors]))

    def describe(self, regions: Sequence[str]) -> bytes:
        """See Transfer.describe; without addresses, which are nobody's business here."""
        return msgspec.msgpack.encode(Offer(self.engine, self.kind, "", b"", []))

    def connect(self, peer: str, offer: bytes, deadline: Deadline) -> None:
        """See Transfer.connect; only checks that the peer sends by p2p too."""
        decode_offer(offer, peer, self.kind)

    def prepare(self, exchanges: Sequence[Sequence[Piece]]) -> PreparedPieces:
        """See Transfer.prepare; nothing has to be done."""
        return PreparedPieces(self, exchanges)

    def exchange(
        self, incoming: Sequence[Piece], outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None
    ) -> None:
        """See Transfer.exchange; posts everything, then waits."""
        if route is None:
            raise TransferError("p2p needs a route: the group that both ends are in")
        group = route.group
        landing = [_on_host(piece.tensor) for piece in incoming]  # groups of the host move bytes of the host
        try:
            posted = [group.post_recv(to, route.rank(one.peer)) for to, one in zip(landing, incoming, strict=True)]
            posted += [group.post_send(as_bytes(piece.tensor).cpu(), route.rank(piece.peer)) for piece in outgoing]
            for pending in posted:
                pending.wait(deadline.left())
            for to, piece in zip(landing, incoming, strict=True):
                if piece.tensor.is_cuda:
                    as_bytes(piece.tensor).copy_(to)
        except GroupError as error:
            self._quarantine += incoming
            raise TransferError(f"engine {self.engine} could not exchange {len(incoming)} pieces: {error}") from error
        self.moved["p2p"] += sum(as_bytes(piece.tensor).numel() for piece in incoming)

    def rest(self, regions: Sequence[str]) -> None:
        """See Transfer.rest; there is nothing."""

    def withdraw(self, region: str) -> None:
        """See Transfer.withdraw."""
        self._regions.pop(region, None)

    def forget(self, peer: str) -> None:
        """See Transfer.forget; there is nothing."""

    def keep(self, peers: Collection[str]) -> None:
        """See Transfer.keep; there is nothing."""

    def settle(self, peer: str) -> None:
        """See Transfer.settle; the group with that peer is closed by then."""
        self._quarantine = [piece for piece in self._quarantine if piece.peer != peer]

    def pump(self) -> None:
        """See Transfer.pump; a group needs none."""

    def renew(self) -> None:
        """See Transfer.renew; a group has no names to renew."""

    def close(self) -> None:
        """Let go of what was quarantined (its groups are closed by now)."""
        self._regions.clear()
        self._quarantine.clear()


def _on_host(tensor: Tensor) -> Tensor:
    """The tensor's own bytes, or memory of the host in their place."""
    raw = as_bytes(tensor)
    return torch.empty_like(raw, device="cpu") if raw.is_cuda else raw


class PreparedPieces:
    """Lists of pieces that wait for their turn."""

    def __init__(self, transfer: P2pTransfer, exchanges: Sequence[Sequence[Piece]]) -> None:
        self._transfer = transfer
        self._exchanges = exchanges

    def run(self, index: int, outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None) -> None:
        """See Prepared.run."""
        self._transfer.exchange(self._exchanges[index], outgoing, deadline, route)

    def release(self) -> None:
        """See Prepared.release; there is nothing."""
