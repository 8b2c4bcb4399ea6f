"""The steps `experts.*`: one layer at a time is read beside the forward steps and put in place between two of them.

A layer is safe by order alone: the worker reads rows into staging memory, which the model never sees; the step
whose bit `layer` is full tells every rank that all have finished reading, and `confirm` that all of them succeeded;
only then does `apply` overwrite slots. So a source never overwrites a row that somebody still reads, and every read
sees the old row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elasticfsm.errors import PlacementError, TransferError

from ..deadline import Cancelled, Deadline
from ..groups import Generation
from ..weights.transfer import checksum
from . import offers
from .placement import Placement
from .plan import Move
from .reads import Reads
from .state import ExpertState, Part, Staged


class Experts:
    """Adapter of the steps `experts.*`: fence and read run in the worker's thread, all others in the main loop."""

    def __init__(self, state: ExpertState, cancelled: Cancelled = None) -> None:
        self._state = state
        self._closing = cancelled

    # -- worker ------------------------------------------------------------------------------------------------

    def fence(self, name: str, cancelled: Cancelled = None) -> None:
        """Step experts.fence: all ranks are at this layer; carries the checksums of the rows that move.

        Blocks until all ranks have entered. The first fence of a plan carries every rank's offer, too.
        Raises IdentityMismatch when ranks stand at different layers or plans, GroupError when a peer is gone.
        """
        with self._remembered():
            self._fence(name, cancelled)

    def _fence(self, name: str, cancelled: Cancelled) -> None:
        state = self._state
        generation = state.members(name)
        part = state.part()
        moves = part.moves
        facts = {"placement": state.current().hash(), "layer": part.layer, "moves": len(moves)}
        sums = [self._source_checksum(move, generation.rank) for move in moves]
        place = 0 if state.offers else offers.words(state.offer_bytes)
        own = offers.packed(self._offer(), generation.rank, generation.world_size, place) if place else []
        where = f"fence on {generation.eplb.label}"
        extra = state.agree(facts, where, generation.eplb, [*sums, *own], self._either(cancelled))
        state.checksums = extra[: len(moves)]
        if place:
            found = offers.unpacked(extra[len(moves) :], place)
            state.offers = dict(zip(generation.members, found, strict=True))
            del state.offers[state.engine]

    def read(self, role: str = "engine", cancelled: Cancelled = None) -> None:
        """Step experts.read: fetch this rank's rows of the layer into staging memory and verify them.

        Blocks until they are there or the layer's time is up. Raises TransferError (peer dead, stopped, wrong
        checksum): live slots are untouched.
        """
        with self._remembered():
            self._read(cancelled)

    def _read(self, cancelled: Cancelled) -> None:
        state = self._state
        target, part = state.target, state.part()
        generation = state.members("active")
        deadline = self.deadline(part, self._either(cancelled))
        reads = self._prepared(generation, deadline)
        if reads is None or target is None:
            raise TransferError("the rebalance was given up before its rows were read")
        staged = reads.fetch(part, deadline)
        self._verify(part, staged, generation)
        if state.target is not target:
            raise TransferError("the rebalance was given up while its rows were read")
        state.staged = staged

    def deadline(self, part: Part, cancelled: Cancelled) -> Deadline:
        """How long the read of a part may take."""
        return Deadline(self._state.seconds, f"experts of layer {part.layer}", cancelled)

    def _prepared(self, generation: Generation, deadline: Deadline) -> Reads | None:
        """What was prepared, or is now; None when the main loop has ended the rebalance meanwhile."""
        state = self._state
        if state.reads is not None and state.reads.done:
            state.reads.release()
            state.reads = None
        if state.target is not None and state.reads is None:
            state.reads = Reads(state, generation, deadline)
        return state.reads

    # -- main loop ---------------------------------------------------------------------------------------------

    def confirm(self, name: str) -> str:
        """Step experts.confirm: whether every rank has read the layer; else all give up. Blocks until all entered."""
        state = self._state
        read = torch.tensor([int(state.staged is not None)], dtype=torch.int64)
        state.members(name).eplb.post_all_reduce(read, "min").wait(state.patience or state.seconds)
        if int(read):
            state.applying = True
            return "all"
        state.failed = state.failed or state.staged is None
        mine = state.why or "nothing was read" if state.staged is None else "another engine could not read"
        state.transfers.say(f"experts of layer {state.pending[0]} stay where they are: {mine}")
        self._give_up()
        return "not_all"

    def apply(self) -> None:
        """Step experts.apply: copy the staged rows into their slots and route the layer by the new map.

        Between two steps, on every rank at the same one; local, blocks until a device has copied. Raises PlacementError
        before anything is overwritten when the layer would leave an expert without a replica.
        """
        state = self._state
        if state.staged is None or state.target is None:
            raise PlacementError("no layer was read; nothing to apply")
        part = state.part()
        Placement(part.now[None], state.experts, state.slots_per_rank).check(duplicates=not part.last)
        for row in state.staged:
            self.store(part.layer, row)
            state.tally.rows += 1
        if any(tensor.is_cuda for row in state.staged for tensor in row.tensors):
            torch.cuda.current_stream().synchronize()  # the worker writes into the staging memory after this step
        state.staged = None
        state.placement = state.current().with_row(part.layer, part.now)
        state.memory.set_routing(part.layer, state.placement.row(part.layer))
        state.before = None  # rows have moved: the placement before the switch is no longer true
        state.parts.pop(0)
        if part.last:
            state.pending.pop(0)
            state.tally.layers += 1

    def store(self, layer: int, row: Staged) -> None:
        """Overwrite one live slot with its staged row."""
        for live, new in zip(self._state.memory.slot_tensors(layer, row.slot), row.tensors, strict=True):
            live.copy_(new)

    def settle(self, name: str) -> str:
        """Step experts.settle: all ranks applied the same layer; answers "more" or "last". Blocks until all entered."""
        state = self._state
        generation = state.members(name)
        facts = {"placement": state.current().hash(), "remaining": len(state.pending)}
        state.agree(facts, f"settle on {generation.eplb.label}", generation.eplb, within=state.patience)
        state.applying = False
        if state.pending:
            return "more"
        state.end()
        return "last"

    def stop(self) -> None:
        """Step experts.stop: nothing moves until `start`; what a broken rebalance left behind is given up."""
        self._give_up()
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

    def _give_up(self) -> None:
        if self._state.target is not None:
            self._state.end(failed=True)

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        """What ends the worker's step is said when all members have given the layer up, whatever it is."""
        self._state.why = ""
        try:
            yield
        except BaseException as error:
            self._state.why = f"{type(error).__name__}: {error}"
            raise

    def _either(self, cancelled: Cancelled) -> Cancelled:
        """Withdrawn: this list, or the whole engine."""

        def asked() -> bool:
            return any(each() if callable(each) else each.is_set() for each in (cancelled, self._closing) if each)

        return asked

    def _offer(self) -> bytes:
        return self._state.transfer.describe(self._state.regions())

    def _source_checksum(self, move: Move, rank: int) -> int:
        """Return the checksum of a row that this rank holds, 0 of others: the MAX over all ranks is the source's."""
        source, slot = divmod(move.source, self._state.slots_per_rank)
        return row_checksum(self._state.memory.slot_tensors(self._state.pending[0], slot)) if source == rank else 0

    def _verify(self, part: Part, staged: list[Staged], generation: Generation) -> None:
        per_rank, sums = self._state.slots_per_rank, self._state.checksums
        expected = {move.destination: (move, sum_) for move, sum_ in zip(part.moves, sums, strict=True)}
        for row in staged:
            move, wanted = expected[generation.rank * per_rank + row.slot]
            found = row_checksum(row.tensors)
            if found != wanted:
                source = generation.members[move.source // per_rank]
                raise TransferError(
                    f"layer {part.layer}, expert {move.expert} from engine {source} arrived with checksum "
                    f"{found:x}, expected {wanted:x}; its slot keeps what it had"
                )


def row_checksum(tensors: list[torch.Tensor]) -> int:
    """Return one positive number for the bytes of an expert's tensors."""
    total = 1
    for tensor in tensors:
        total = (total * 1000003 + checksum(tensor)) % ((1 << 61) - 1)
    return total
