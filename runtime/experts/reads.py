"""What one rank reads in one plan: staging memory and prepared reads for all of its layers, made when the plan begins.

The staging memory is one block per kind of tensor, as large as the part with most rows needs, and used again for every
part: the worker begins the next one only after the rows of the one before were copied out of it. A part is a layer, or
less where a budget of bytes bounds what arrives beside one step.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..deadline import Deadline
from ..groups import Generation
from ..weights.regions import as_bytes
from ..weights.transfer import Piece, Route
from .plan import Move
from .state import ExpertState, Part, Staged, region


class Reads:
    """The reads of the parts that were cut; used by the worker only. Constructor and `fetch` raise TransferError."""

    def __init__(self, state: ExpertState, generation: Generation, deadline: Deadline) -> None:
        self._allocate(state, generation)
        incoming = [self._incoming(part) for part in state.parts]
        for peer in dict.fromkeys(piece.peer for pieces in incoming for piece in pieces):
            state.transfer.connect(peer, state.offers[peer], deadline)
        self._prepared = state.transfer.prepare(incoming)

    def _allocate(self, state: ExpertState, generation: Generation) -> None:
        self._state = state
        self._generation = generation
        self._left = len(state.parts)
        self._all = self._left
        rows = max((len(self._mine(part)) for part in state.parts), default=0)
        self._blocks = [tensor.new_empty((rows, *tensor.shape)) for tensor in state.memory.slot_tensors(0, 0)]

    @property
    def done(self) -> bool:
        """Whether every part was fetched."""
        return self._left == 0

    def fetch(self, part: Part, deadline: Deadline) -> list[Staged]:
        """Bring this rank's rows of a part, the next one, into the staging memory; blocks until they are there."""
        staged = self._staging(part)
        self._copy_own(part, staged)
        route = Route(self._generation.world, self._generation.members)
        number, self._left = self._all - self._left, self._left - 1
        self._prepared.run(number, self._outgoing(part), deadline, route)
        return staged

    def release(self) -> None:
        """Let go of the staging memory; what a failed read may still write into is kept by the transfer."""
        self._prepared.release()

    def _rank(self, slot: int) -> int:
        return slot // self._state.slots_per_rank

    def _mine(self, part: Part) -> list[Move]:
        return [move for move in part.moves if self._rank(move.destination) == self._generation.rank]

    def _copy_own(self, part: Part, staged: Sequence[Staged]) -> None:
        """Copy the rows that this rank holds in another slot itself."""
        for move, row in zip(self._mine(part), staged, strict=True):
            if self._rank(move.source) == self._generation.rank:
                own = self._state.memory.slot_tensors(part.layer, move.source % self._state.slots_per_rank)
                for new, old in zip(row.tensors, own, strict=True):
                    new.copy_(old)

    def _staging(self, part: Part) -> list[Staged]:
        return [
            Staged(move.destination % self._state.slots_per_rank, move.expert, [block[i] for block in self._blocks])
            for i, move in enumerate(self._mine(part))
        ]

    def _incoming(self, part: Part) -> list[Piece]:
        pieces: list[Piece] = []
        for move, row in zip(self._mine(part), self._staging(part), strict=True):
            source = self._rank(move.source)
            if source != self._generation.rank:
                pieces += self._pieces(part.layer, move, self._generation.members[source], row.tensors)
        return pieces

    def _outgoing(self, part: Part) -> list[Piece]:
        pieces: list[Piece] = []
        for move in part.moves:
            receiver = self._rank(move.destination)
            if self._rank(move.source) == self._generation.rank != receiver:
                tensors = self._state.memory.slot_tensors(part.layer, move.source % self._state.slots_per_rank)
                pieces += self._pieces(part.layer, move, self._generation.members[receiver], tensors)
        return pieces

    def _pieces(self, layer: int, move: Move, peer: str, tensors: list[Tensor]) -> list[Piece]:
        """Return one piece per tensor of a row; the region holds kind by kind, slot by slot."""
        per_rank, start, pieces = self._state.slots_per_rank, 0, []
        for tensor in tensors:
            nbytes = as_bytes(tensor).numel()
            pieces.append(Piece(peer, region(layer), start + move.source % per_rank * nbytes, tensor))
            start += per_rank * nbytes
        return pieces
