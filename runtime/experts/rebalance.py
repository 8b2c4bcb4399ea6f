"""The steps `experts.*`: one layer at a time is read beside the forward steps and put in place between two of them.

A layer is safe by order alone: the worker reads rows into staging memory, which the model never sees; the step
whose bit `layer` is full tells every rank that all have finished reading; only then does `apply` overwrite slots.
So a source never overwrites a row that somebody still reads, and every read sees the old row.
"""

from __future__ import annotations

import torch

from elasticfsm.errors import PlacementError, TransferError

from ..deadline import Cancelled, Deadline
from ..groups import Generation
from ..weights.regions import as_bytes
from ..weights.transfer import Piece, Route, checksum
from .plan import Move
from .state import OFFER_PREFIX, ExpertState, Staged, region


class Experts:
    """Adapter of the steps `experts.*`: fence and read run in the worker's thread, all others in the main loop."""

    def __init__(self, state: ExpertState, cancelled: Cancelled = None) -> None:
        self._state = state
        self._cancelled = cancelled

    # -- worker ------------------------------------------------------------------------------------------------

    def fence(self, name: str) -> None:
        """Step experts.fence: all ranks are at this layer; carries the checksums of the rows that move.

        Blocks until all ranks have entered. The first fence of a plan carries every rank's offer, too.
        Raises IdentityMismatch when ranks stand at different layers or plans, GroupError when a peer is gone.
        """
        state = self._state
        generation = state.members(name)
        moves = state.layer_moves()
        facts = {"placement": state.current().hash(), "layer": state.pending[0], "moves": len(moves)}
        sums = [self._source_checksum(move, generation.rank) for move in moves]
        offers = [] if state.offers else self._own_offer(generation)
        extra = state.agree(facts, f"fence on {generation.eplb.label}", generation.eplb, [*sums, *offers])
        state.checksums = extra[: len(moves)]
        if offers:
            state.offers = _split_offers(extra[len(moves) :], generation, state.offer_bytes)

    def read(self, role: str = "engine") -> None:
        """Step experts.read: fetch this rank's rows of the layer into staging memory and verify them.

        Blocks until they are there or the layer's time is up. Raises TransferError (peer dead, stopped, wrong
        checksum): live slots are untouched, and what this rank offers stays until the next plan or `stop`, because
        others may still read it.
        """
        state = self._state
        target = state.target
        staged = self._fetch(state.members("active"))
        if target is None or state.target is not target:
            raise TransferError("the rebalance was given up while its rows were read")
        state.staged = staged

    # -- main loop ---------------------------------------------------------------------------------------------

    def confirm(self, name: str) -> str:
        """Step experts.confirm: whether every rank has read the layer; answers "all" or "not_all", alike on all ranks.

        Blocks until all have entered. If one could not read, all give this rebalance up: live slots are untouched.
        """
        state = self._state
        read = torch.tensor([int(state.staged is not None)], dtype=torch.int64)
        state.members(name).eplb.all_reduce(read, "min", state.seconds)
        if int(read):
            return "all"
        state.end(failed=True)
        return "not_all"

    def apply(self) -> None:
        """Step experts.apply: copy the staged rows into their slots and route the layer by the new map.

        Between two steps, on every rank at the same one; local, does not block.
        """
        state = self._state
        if state.staged is None or state.target is None:
            raise PlacementError("no layer was read; nothing to apply")
        layer = state.pending[0]
        for row in state.staged:
            self.store(layer, row)
        state.staged = None
        state.placement = state.current().with_row(layer, state.target.row(layer))
        state.memory.set_routing(layer, state.placement.row(layer))
        state.before = None  # rows have moved: the placement before the switch is no longer true
        state.pending.pop(0)

    def store(self, layer: int, row: Staged) -> None:
        """Overwrite one live slot with its staged row."""
        for live, new in zip(self._state.memory.slot_tensors(layer, row.slot), row.tensors, strict=True):
            live.copy_(new)

    def settle(self, name: str) -> str:
        """Step experts.settle: all ranks applied the same layer; answers "more" or "last". Blocks until all entered."""
        state = self._state
        generation = state.members(name)
        facts = {"placement": state.current().hash(), "remaining": len(state.pending)}
        state.agree(facts, f"settle on {generation.eplb.label}", generation.eplb)
        if state.pending:
            return "more"
        state.end()
        return "last"

    def stop(self) -> None:
        """Step experts.stop: nothing moves until `start`; what a broken rebalance left behind is given up."""
        if self._state.target is not None:
            self._state.end(failed=True)
        self._state.still = True

    def start(self) -> None:
        """Step experts.start: rebalances may run again."""
        self._state.still = False

    def leave(self) -> None:
        """Step experts.leave: make sure that no removing engine holds an expert any more; local."""
        state = self._state
        leaving = state.removing_ranks(state.members("active"))
        held = leaving & state.current().ranks_used()
        if held:
            raise PlacementError(f"ranks {sorted(held)} are to leave but still hold experts: evacuate them first")
        if not leaving and state.removing:
            raise PlacementError(f"none of {list(state.removing)} is a member of the active generation")

    # -- inside ------------------------------------------------------------------------------------------------

    def _source_checksum(self, move: Move, rank: int) -> int:
        """Return the checksum of a row that this rank holds, 0 of others: the MAX over all ranks is the source's."""
        source, slot = divmod(move.source, self._state.slots_per_rank)
        return (
            self._row_checksum(self._state.memory.slot_tensors(self._state.pending[0], slot)) if source == rank else 0
        )

    @staticmethod
    def _row_checksum(tensors: list[torch.Tensor]) -> int:
        total = 1
        for tensor in tensors:
            total = (total * 1000003 + checksum(tensor)) % ((1 << 61) - 1)
        return total

    def _own_offer(self, generation: Generation) -> list[int]:
        """Return [world_size * offer_bytes] with this rank's offer at its place, zeros elsewhere."""
        state = self._state
        offer = state.transfer.describe([region(layer) for layer in range(state.layers)])
        packed = bytearray(generation.world_size * state.offer_bytes)
        start = generation.rank * state.offer_bytes
        packed[start : start + OFFER_PREFIX] = len(offer).to_bytes(OFFER_PREFIX, "big")
        packed[start + OFFER_PREFIX : start + OFFER_PREFIX + len(offer)] = offer
        return list(packed)

    def _fetch(self, generation: Generation) -> list[Staged]:
        state, per_rank, rank = self._state, self._state.slots_per_rank, generation.rank
        layer, moves = state.pending[0], state.layer_moves()
        deadline = Deadline(state.seconds, f"experts of layer {layer}", self._cancelled)
        mine = [move for move in moves if move.destination // per_rank == rank]
        staged = self._staging(layer, mine)
        incoming: list[Piece] = []
        for move, row in zip(mine, staged, strict=True):
            if move.source // per_rank == rank:
                for new, old in zip(row.tensors, state.memory.slot_tensors(layer, move.source % per_rank), strict=True):
                    new.copy_(old)
            else:
                incoming += self._pieces(layer, move, generation.members[move.source // per_rank], row.tensors)
        for peer in dict.fromkeys(piece.peer for piece in incoming):
            state.transfer.connect(peer, state.offers[peer], deadline)
        outgoing = self._outgoing(layer, moves, generation)
        state.transfer.exchange(incoming, outgoing, deadline, Route(generation.eplb, generation.members))
        self._verify(moves, mine, staged, generation)
        return staged

    def _staging(self, layer: int, mine: list[Move]) -> list[Staged]:
        """Return fresh memory for the rows, one block per kind of tensor."""
        like = self._state.memory.slot_tensors(layer, 0)
        blocks = [tensor.new_empty((len(mine), *tensor.shape)) for tensor in like]
        slots = [move.destination % self._state.slots_per_rank for move in mine]
        return [
            Staged(slot, move.expert, [block[i] for block in blocks])
            for i, (slot, move) in enumerate(zip(slots, mine, strict=True))
        ]

    def _pieces(self, layer: int, move: Move, peer: str, tensors: list[torch.Tensor]) -> list[Piece]:
        """Return one piece per tensor of a row; the region holds kind by kind, slot by slot."""
        per_rank, start, pieces = self._state.slots_per_rank, 0, []
        for tensor in tensors:
            nbytes = as_bytes(tensor).numel()
            pieces.append(Piece(peer, region(layer), start + move.source % per_rank * nbytes, tensor))
            start += per_rank * nbytes
        return pieces

    def _outgoing(self, layer: int, moves: list[Move], generation: Generation) -> list[Piece]:
        per_rank, pieces = self._state.slots_per_rank, []
        for move in moves:
            source, receiver = move.source // per_rank, move.destination // per_rank
            if source == generation.rank != receiver:
                tensors = self._state.memory.slot_tensors(layer, move.source % per_rank)
                pieces += self._pieces(layer, move, generation.members[receiver], tensors)
        return pieces

    def _verify(self, moves: list[Move], mine: list[Move], staged: list[Staged], generation: Generation) -> None:
        expected = dict(zip(moves, self._state.checksums, strict=True))
        for move, row in zip(mine, staged, strict=True):
            found = self._row_checksum(row.tensors)
            if found != expected[move]:
                source = generation.members[move.source // self._state.slots_per_rank]
                raise TransferError(
                    f"layer {self._state.pending[0]}, expert {move.expert} from engine {source} arrived with checksum "
                    f"{found:x}, expected {expected[move]:x}; its slot keeps what it had"
                )


def _split_offers(packed: list[int], generation: Generation, size: int) -> dict[str, bytes]:
    """Return the offers of the other members; each fills `size` bytes, its length first."""
    offers = {}
    for rank, member in enumerate(generation.members):
        if rank != generation.rank:
            slot = bytes(packed[rank * size : (rank + 1) * size])
            offers[member] = slot[OFFER_PREFIX : OFFER_PREFIX + int.from_bytes(slot[:OFFER_PREFIX], "big")]
    return offers
