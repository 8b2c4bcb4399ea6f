"""The `weights.*` steps: existing engines offer what every engine holds alike, new ones read it, checked by sums."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from torch import Tensor

from elasticfsm.errors import GroupError, TransferError

from ..deadline import Cancelled, Deadline
from .board import Board
from .choice import Transfers
from .regions import as_bytes
from .transfer import Peers, Piece, Route, Transfer, checksum

REGION = "weights"
OUTSTANDING = 32  # p2p sends tensor by tensor; so many are posted at once
SLICE_SECONDS = 0.005  # between two looks at the board; whoever waits pumps as often


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the region: name, dtype, shape, CRC-32 of its bytes."""

    name: str
    dtype: str
    shape: list[int]
    checksum: int


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source publishes: its Offer (encoded) by every transfer it has, and the tensors of the region in order.

    It publishes before the members have agreed which of them they use.
    """

    offers: dict[str, bytes]
    entries: list[Entry]


@dataclass(frozen=True)
class Meeting:
    """Who shares weights in one operation: engine ids of sources and readers in rank order, and where they meet.

    `group` is the standby world group with its members in rank order, used by p2p only (not known at once).
    """

    existing: Sequence[str]
    new: Sequence[str]
    board: Board
    seconds: float
    cancelled: Cancelled = None
    group: Callable[[], tuple[Peers, Sequence[str]]] | None = None

    def deadline(self, what: str) -> Deadline:
        """Return the deadline of one step that begins now."""
        return Deadline(self.seconds, what, self.cancelled)

    def source_of(self, reader: str) -> str:
        """Return the source that serves a reader by p2p: both ends decide it alike."""
        return self.existing[self.new.index(reader) % len(self.existing)]


class WeightSharing:
    """Adapter of the steps `weights.offer|read|withdraw|forget`; its methods run in one background thread.

    `tensors` are the non-expert weights by name, contiguous, the same names on every engine.
    """

    def __init__(self, transfers: Transfers, tensors: Mapping[str, Tensor]) -> None:
        self._transfers = transfers
        self._tensors = dict(sorted(tensors.items()))
        self._entries: list[Entry] = []
        self._meeting: Meeting | None = None
        self._published = False

    @property
    def transfer(self) -> Transfer:
        """What the members of the coming generation agreed to use."""
        return self._transfers.coming

    def begin(self, meeting: Meeting) -> None:
        """Name the operation's participants; called before its first step."""
        self._meeting = meeting

    def offer(self) -> None:
        """Step weights.offer (existing): register the tensors and publish where they lie. Does not wait."""
        meeting = self._agreed()
        if not self._entries:  # non-expert weights never change while serving: summed once
            self._entries = [_entry(name, tensor) for name, tensor in self._tensors.items()]
        offers = {}
        for transfer in self._transfers.all:
            transfer.offer(REGION, list(self._tensors.values()))
            offers[str(transfer.kind)] = transfer.describe([REGION])
        publication = Publication(offers, self._entries)
        meeting.board.set(_offer_key(self.transfer.engine), msgspec.msgpack.encode(publication))
        self._published = True

    def read(self, role: str = "existing") -> None:
        """Step weights.read (new): fill all tensors from the peers of `role` and verify every one.

        Blocks until done or the meeting's limit. Raises TransferError: absent or dead source, other layout, wrong
        checksum. The tensors must not be used after an error.
        """
        meeting = self._agreed()
        me = self.transfer.engine
        deadline = meeting.deadline(f"engine {me} reads weights")
        sources = [meeting.source_of(me)] if self.transfer.kind == "p2p" else list(meeting.existing)
        entries: list[Entry] = []
        for source in sources:
            entries = self._greet(source, meeting, deadline, entries)
        for batch in _batched(self._schedule(sources), OUTSTANDING if self.transfer.kind == "p2p" else 0):
            self.transfer.exchange(batch, [], deadline, self._route(meeting))
        self._verify(entries, sources)
        meeting.board.set(_done_key(me), b"read")
        for source in sources:
            self.transfer.forget(source)

    def withdraw(self, role: str = "new") -> None:
        """Step weights.withdraw (existing): wait until every engine of `role` has read, then end the offer."""
        meeting = self._agreed()
        deadline = meeting.deadline(f"engine {self.transfer.engine} waits until its weights are read")
        if self.transfer.kind == "p2p":
            self._send(meeting, deadline)
        for reader in meeting.new:
            self._await(_done_key(reader), meeting.board, deadline)
        self.forget()

    def forget(self) -> None:
        """Step weights.forget (existing): end the offer; harmless when there is none. Readers are done or given up."""
        for transfer in self._transfers.all:
            transfer.withdraw(REGION)
        if self._published and self._meeting is not None:
            self._published = False
            self._meeting.board.clear(f"weights/{self.transfer.engine}")

    def adapters(self) -> dict[str, Any]:
        """Return the table for the interpreter."""
        return {"weights": self}

    def _agreed(self) -> Meeting:
        if self._meeting is None:
            raise TransferError("no operation was begun: call begin() with its engines first")
        return self._meeting

    def _greet(self, source: str, meeting: Meeting, deadline: Deadline, before: list[Entry]) -> list[Entry]:
        """Wait for a source's publication, compare it with our model and with the sources before, connect."""
        encoded = self._await(_offer_key(source), meeting.board, deadline)
        try:
            publication = msgspec.msgpack.decode(encoded, type=Publication)
        except msgspec.MsgspecError as error:
            raise TransferError(f"what engine {source} published cannot be read: {error}") from error
        mine = [(name, str(tensor.dtype), list(tensor.shape)) for name, tensor in self._tensors.items()]
        theirs = [(entry.name, entry.dtype, entry.shape) for entry in publication.entries]
        _refuse_layout(source, mine, theirs)
        if before and before != publication.entries:
            differing = [a.name for a, b in zip(before, publication.entries, strict=True) if a != b]
            raise TransferError(f"engine {source} holds other weights than its peers: {', '.join(differing[:4])}")
        offer = publication.offers.get(self.transfer.kind) or next(iter(publication.offers.values()), b"")
        self.transfer.connect(source, offer, deadline)  # refuses an offer by another transfer
        return publication.entries

    def _schedule(self, sources: Sequence[str]) -> list[Piece]:
        """Stripe the region: source i gives the i-th equal share of its bytes, in order: few long runs."""
        total = sum(as_bytes(tensor).numel() for tensor in self._tensors.values())
        bounds = [total * i // len(sources) for i in range(len(sources) + 1)]
        pieces, start = [], 0
        for tensor in self._tensors.values():
            raw = as_bytes(tensor)
            for i, source in enumerate(sources):
                low, high = max(bounds[i], start), min(bounds[i + 1], start + raw.numel())
                if low < high:
                    pieces.append(Piece(source, REGION, low, raw[low - start : high - start]))
            start += raw.numel()
        return pieces

    def _verify(self, entries: Sequence[Entry], sources: Sequence[str]) -> None:
        for entry in entries:
            found = checksum(self._tensors[entry.name])
            if found != entry.checksum:
                raise TransferError(
                    f"{entry.name} arrived with checksum {found:08x}, expected {entry.checksum:08x} "
                    f"(read from {', '.join(sources)}); the engine must not serve with it"
                )

    def _route(self, meeting: Meeting) -> Route | None:
        return Route(*meeting.group()) if self.transfer.kind == "p2p" and meeting.group is not None else None

    def _send(self, meeting: Meeting, deadline: Deadline) -> None:
        for reader in meeting.new:
            if meeting.source_of(reader) != self.transfer.engine:
                continue
            pieces = [Piece(reader, piece.region, piece.offset, piece.tensor) for piece in self._schedule([reader])]
            for batch in _batched(pieces, OUTSTANDING):
                self.transfer.exchange([], batch, deadline, self._route(meeting))

    def _await(self, key: str, board: Board, deadline: Deadline) -> bytes:
        """Wait for a key, pumping between looks: a peer may be wiring up to us."""
        try:
            while (value := board.get(key)) is None:
                self.transfer.pump()
                time.sleep(deadline.slice(SLICE_SECONDS))
        except GroupError as error:
            raise TransferError(f"nothing at {key}: {error}") from error
        return value


def _entry(name: str, tensor: Tensor) -> Entry:
    return Entry(name, str(tensor.dtype), list(tensor.shape), checksum(tensor))


def _refuse_layout(source: str, mine: Sequence[Any], theirs: Sequence[Any]) -> None:
    if mine == theirs:
        return
    for ours, other in zip(mine, theirs, strict=False):
        if ours != other:
            raise TransferError(f"engine {source} offers {other}; this engine's model has {ours}: not the same model")
    raise TransferError(f"engine {source} offers {len(theirs)} tensors, this engine's model has {len(mine)}")


def _batched(pieces: Sequence[Piece], size: int) -> list[Sequence[Piece]]:
    """Cut into batches of `size`; one batch for zero."""
    size = size or max(1, len(pieces))
    return [pieces[at : at + size] for at in range(0, len(pieces), size)]


def _offer_key(engine: str) -> str:
    return f"weights/{engine}/offer"


def _done_key(engine: str) -> str:
    return f"weights/{engine}/read"
