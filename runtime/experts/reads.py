"""What one rank reads in one plan: staging memory and prepared reads for all of its layers, made when the plan begins.

The staging memory is one block per kind of tensor, as large as the layer with most rows needs, and used again for every
layer: the worker begins the next layer only after the rows of the one before were copied out of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..deadline import Deadline
from ..groups import Generation
from ..weights.regions import as_bytes
from ..weights.transfer import Piece, Route
from .placement import Placement
from .plan import Move
from .state import ExpertState, Staged, region


class Reads:
    """The reads of one plan; used by the worker only. Raises TransferError from its constructor and from `fetch`."""

    def __init__(self, state: ExpertState, target: Placement, generation: Generation, deadline: Deadline) -> None:
        self._state = state
        self._generation = generation
        self._numbers = {layer: number for number, layer in enumerate(state.pending)}
        moves = [state.moves_of(layer, target) for layer in state.pending]
        mine = [[move for move in each if self._rank(move.destination) == generation.rank] for each in moves]
        rows = max((len(each) for each in mine), default=0)
        self._blocks = [tensor.new_empty((rows, *tensor.shape)) for tensor in state.memory.slot_tensors(0, 0)]
        self._mine = dict(zip(state.pending, mine, strict=True))
        incoming = [self._incoming(layer) for layer in state.pending]
        for peer in dict.fromkeys(piece.peer for pieces in incoming for piece in pieces):
            state.transfer.connect(peer, state.offers[peer], deadline)
        self._prepared = state.transfer.prepare(incoming)

    def fetch(self, layer: int, moves: Sequence[Move], deadline: Deadline) -> list[Staged]:
        """Bring this rank's rows of a layer into the staging memory; blocks until they are there."""
        staged = self._staging(layer)
        for move, row in zip(self._mine[layer], staged, strict=True):
            if self._rank(move.source) == self._generation.rank:
                own = self._state.memory.slot_tensors(layer, move.source % self._state.slots_per_rank)
                for new, old in zip(row.tensors, own, strict=True):
                    new.copy_(old)
        route = Route(self._generation.world, self._generation.members)
        self._prepared.run(self._numbers[layer], self._outgoing(layer, moves), deadline, route)
        return staged

    def release(self) -> None:
        """Let go of the staging memory; what a failed read may still write into is kept by the transfer."""
        self._prepared.release()

    def _rank(self, slot: int) -> int:
        return slot // self._state.slots_per_rank

    def _staging(self, layer: int) -> list[Staged]:
        return [
            Staged(move.destination % self._state.slots_per_rank, move.expert, [block[i] for block in self._blocks])
            for i, move in enumerate(self._mine[layer])
        ]

    def _incoming(self, layer: int) -> list[Piece]:
        pieces: list[Piece] = []
        for move, row in zip(self._mine[layer], self._staging(layer), strict=True):
            source = self._rank(move.source)
            if source != self._generation.rank:
                pieces += self._pieces(layer, move, self._generation.members[source], row.tensors)
        return pieces

    def _outgoing(self, layer: int, moves: Sequence[Move]) -> list[Piece]:
        pieces: list[Piece] = []
        for move in moves:
            receiver = self._rank(move.destination)
            if self._rank(move.source) == self._generation.rank != receiver:
                tensors = self._state.memory.slot_tensors(layer, move.source % self._state.slots_per_rank)
                pieces += self._pieces(layer, move, self._generation.members[receiver], tensors)
        return pieces

    def _pieces(self, layer: int, move: Move, peer: str, tensors: list[Tensor]) -> list[Piece]:
        """Return one piece per tensor of a row; the region holds kind by kind, slot by slot."""
        per_rank, start, pieces = self._state.slots_per_rank, 0, []
        for tensor in tensors:
            nbytes = as_bytes(tensor).numel()
            pieces.append(Piece(peer, region(layer), start + move.source % per_rank * nbytes, tensor))
            start += per_rank * nbytes
        return pieces
