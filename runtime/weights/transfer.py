"""The one interface through which weights move, and what its implementations share: pieces, regions, checksums."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec
from torch import Tensor

from elasticfsm.errors import TransferError

from ..deadline import Cancelled, Deadline
from .regions import Region, as_bytes
from .sums import device_checksum

Kind = Literal["nixl", "p2p"]


@dataclass(frozen=True)
class Piece:
    """Bytes of a named region between this engine and a peer.

    Incoming: bytes [offset, offset + nbytes of `tensor`) of the peer's region land in `tensor`. Outgoing: `tensor`
    holds those bytes of our region. `peer` is an engine id, `tensor` contiguous and of any dtype.
    """

    peer: str
    region: str
    offset: int
    tensor: Tensor


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an engine publishes so that peers can read from it. `agent` is empty with p2p."""

    engine: str
    kind: Kind
    agent: str
    metadata: bytes
    regions: list[Region]


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


@dataclass(frozen=True)
class Route:
    """The group over which p2p exchanges, and its members' engine ids in rank order."""

    group: Peers
    members: Sequence[str]

    def rank(self, peer: str) -> int:
        """Return the rank of an engine; raises TransferError if it is no member."""
        if peer not in self.members:
            raise TransferError(f"engine {peer} is not in the group of {', '.join(self.members)}")
        return self.members.index(peer)


class Prepared(Protocol):
    """Exchanges whose destinations and descriptors are ready; for one plan, run by one thread, each at most once."""

    def run(self, index: int, outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None) -> None:
        """Do exchange number `index`; see Transfer.exchange."""
        ...

    def release(self) -> None:
        """Let go of the destinations; those of failed reads are kept until they are settled."""
        ...


class Transfer(Protocol):
    """Moves bytes between engines. Any thread: weights and experts may move at the same time."""

    kind: Kind
    engine: str
    moved: dict[str, int]  # bytes received, by path; for reports

    def offer(self, region: str, tensors: Sequence[Tensor]) -> None:
        """Make the concatenation of `tensors` readable under a name; they must stay allocated until withdrawn."""
        ...

    def describe(self, regions: Sequence[str]) -> bytes:
        """Return the encoded Offer of these regions, for our own channel."""
        ...

    def connect(self, peer: str, offer: bytes, deadline: Deadline) -> None:
        """Get ready to read what `peer` offers; pays for the wire-up now. Raises TransferError."""
        ...

    def prepare(self, exchanges: Sequence[Sequence[Piece]]) -> Prepared:
        """Get several exchanges ready, given by their incoming pieces: what costs per descriptor is paid now and once.

        Their destinations may overlap: they are used one after the other. Raises TransferError.
        """
        ...

    def exchange(
        self, incoming: Sequence[Piece], outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None
    ) -> None:
        """Block until every incoming piece has landed (and, with p2p, every outgoing one has left over `route`).

        Both ends list the pieces between them in the same order. Raises TransferError; the incoming tensors
        are then quarantined: somebody may still write into them, so never use or free them by hand.
        """
        ...

    def rest(self, regions: Sequence[str]) -> None:
        """No peer connects to these regions for now; they stay offered."""
        ...

    def withdraw(self, region: str) -> None:
        """End an offer. It revokes nothing: the caller knows that all readers have finished."""
        ...

    def forget(self, peer: str) -> None:
        """Drop what is known of a peer; harmless when nothing is."""
        ...

    def keep(self, peers: Collection[str]) -> None:
        """Forget every peer but these."""
        ...

    def settle(self, peer: str) -> None:
        """The side of a peer is known to be quiet (it is gone, or all have renewed): what was quarantined is freed."""
        ...

    def pump(self) -> None:
        """Serve peers that are connecting to us; cheap, never blocks. Called about every few milliseconds."""
        ...

    def renew(self) -> None:
        """Go on under a name that no peer has failed on; what is offered stays offered. Used after an error, by all."""
        ...

    def close(self) -> None:
        """Withdraw everything and let go of all peers."""
        ...


def checksum(tensor: Tensor) -> int:
    """Return a sum of a tensor's bytes, 32 bits: CRC-32 on the host, another one (sums.py) on a GPU, where they lie."""
    raw = as_bytes(tensor)
    return device_checksum(raw) if raw.is_cuda else zlib.crc32(raw.numpy().data)


def decode_offer(offer: bytes, peer: str, kind: Kind) -> Offer:
    """Return the Offer of `peer`; raises TransferError if it is garbage, somebody else's or of another kind."""
    try:
        decoded = msgspec.msgpack.decode(offer, type=Offer)
    except msgspec.MsgspecError as error:
        raise TransferError(f"the offer of engine {peer} cannot be read: {error}") from error
    if (decoded.engine, decoded.kind) != (peer, kind):
        raise TransferError(
            f"engine {decoded.engine} offers its weights by {decoded.kind}; expected engine {peer} by {kind}: "
            "start all engines of a deployment with the same transfer"
        )
    return decoded
