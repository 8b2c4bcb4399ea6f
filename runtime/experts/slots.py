"""Expert rows over NCCL: posted by the main loop right after the step on which all ranks agreed, awaited by the worker.

A collective of the device must not be issued by a thread of its own: two communicators on one device would be used in
another order on another rank. `placement.plan` and `experts.settle` are entered by every rank after the same step, so
what they end with is a slot: the rows of the first layer follow the plan, those of the next one follow `settle`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from elasticfsm.errors import GroupError, TransferError

from ..deadline import Deadline
from ..groups import Generation
from ..nccl import NcclPending
from ..weights.regions import as_bytes
from ..weights.transfer import Piece
from .reads import Reads
from .state import ExpertState, Part, Staged

UNKNOWN = 1 << 40
NIXL, NCCL = "nixl", "nccl"


class SlotReads(Reads):
    """The reads of one plan when the device moves the rows; `post` by the main loop, `fetch` by the worker."""

    def __init__(self, state: ExpertState, generation: Generation) -> None:
        self._allocate(state, generation)
        self._pending: NcclPending | None = None
        self._note: Callable[[], None] = _nothing

    def post(self, part: Part) -> None:
        """Issue all sends and receives of a part; does not block."""
        group = self._generation.rows
        if group is None:
            raise TransferError("this generation has no group that moves rows on the device")
        incoming, outgoing = self._incoming(part), self._outgoing(part)
        self._pending, self._note = group.timed_rows(self._ends(incoming), self._ends(outgoing))
        moved = self._state.transfer.moved
        moved[NCCL] = moved.get(NCCL, 0) + sum(as_bytes(piece.tensor).numel() for piece in incoming)

    def fetch(self, part: Part, deadline: Deadline) -> list[Staged]:
        """Wait for what was posted, copy the rows that this rank has itself; blocks until all are there."""
        pending = self._pending
        if pending is None:
            raise TransferError(f"the rows of layer {part.layer} were not posted")
        staged = self._staging(part)
        self._left -= 1
        self._copy_own(part, staged)
        try:
            pending.wait(deadline.left(), deadline.cancelled)
            self._note()
        except GroupError as error:
            raise TransferError(f"the rows of layer {part.layer} did not come: {error}") from error
        finally:
            self._pending = None
        return staged

    def release(self) -> None:
        """Let go of the staging memory. What is under way ends, with its group: nobody waits for it any more.

        A device runs its operations in order: one that waits for a peer which never posts would stop serving, too.
        """
        pending, self._pending = self._pending, None
        group = self._generation.rows
        if pending is not None and group is not None and not pending.done():
            group.cut("a rebalance was given up while its rows were under way")

    def _ends(self, pieces: Sequence[Piece]) -> list[tuple[Any, int]]:
        members = list(self._generation.members)
        return [(as_bytes(piece.tensor), members.index(piece.peer)) for piece in pieces]


class Lanes:
    """Which way expert rows go, decided by all ranks alike at each plan from the slowest rate of each way.

    A rate is measured when a way is used first: NIXL reads a few megabytes when it connects, NCCL times the rows of a
    layer. What was not measured yet counts as fast, so both ways are tried. `wish` overrules: "nixl", "p2p" or "auto".
    While a rank prepares another generation no plan begins to move rows by NCCL: they would meet its rehearsal and its
    capture on the device.
    """

    def __init__(self, state: ExpertState, wish: str, say: Callable[[str], None]) -> None:
        self.lane = NIXL
        self._state, self._wish, self._say = state, wish, say
        self._said = ""
        state.bids, state.heard = self.bids, self.heard

    def bids(self) -> list[int]:
        """Minus kB/s of NIXL and of NCCL on this rank; 0 is unusable, UNKNOWN is usable and not measured."""
        state = self._state
        active = state.generation("active")
        rows = active.rows if active is not None else None
        closed = rows is None or not rows.alive or state.generation("standby") is not None
        nccl = 0 if closed or rows is None else int(rows.gbs * 1e6) or UNKNOWN - 1
        rate = getattr(state.transfer, "rate", 0.0)
        nixl = 0 if state.transfer.kind != NIXL else int(rate * 1e6) or UNKNOWN
        return [-nixl, -nccl]

    def heard(self, largest: Sequence[int]) -> None:
        """Take the decision from the maximum of all bids: the slowest rank's rates."""
        nixl, nccl = (-number for number in largest)
        wanted = {"nixl": NIXL if nixl else NCCL, "p2p": NCCL if nccl else NIXL}
        self.lane = wanted.get(self._wish, NCCL if nccl > nixl else NIXL)
        text = f"expert rows go by {self.lane}: nixl {_rate(nixl)}, nccl {_rate(nccl)}, wish {self._wish}"
        if text != self._said:
            self._said = text
            self._say(text)

    def moving(self) -> bool:
        """Whether a plan that moves rows by NCCL is under way; any thread."""
        return self.lane == NCCL and self._state.target is not None

    def post(self) -> None:
        """In the slot: issue the rows of the layer that is next, if the device moves them."""
        state = self._state
        if self.lane != NCCL or state.target is None:
            return
        part = state.part()
        if state.reads is None or (isinstance(state.reads, SlotReads) and state.reads.done):
            state.reads = SlotReads(state, state.members("active"))
        if isinstance(state.reads, SlotReads):
            state.reads.post(part)


class ThenPost:
    """An adapter one of whose methods, when it gives a certain answer, is followed by a slot."""

    def __init__(self, adapter: object, verb: str, answer: str, post: Callable[[], None]) -> None:
        self._adapter, self._verb, self._answer, self._post = adapter, verb, answer, post

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._adapter, name)
        return self._followed(found) if name == self._verb else found

    def _followed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **keywords: Any) -> Any:
            answer = method(*args, **keywords)
            if answer == self._answer:
                self._post()
            return answer

        return call


def in_slots(adapters: dict[str, object], lanes: Lanes) -> None:
    """Let the steps that all ranks enter alike post the rows of the next layer, in place."""
    adapters["placement"] = ThenPost(adapters["placement"], "plan", "moves", lanes.post)
    adapters["experts"] = ThenPost(adapters["experts"], "settle", "more", lanes.post)


def _rate(number: int) -> str:
    return "unusable" if not number else "not measured" if number >= UNKNOWN - 1 else f"{number / 1e6:.2f} GB/s"


def _nothing() -> None:
    pass
