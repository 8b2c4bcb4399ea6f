"""The hands of one engine: what the steps of the spec do, step `a.b` being the method `b` of adapter `a`.

The engine core itself is reached through `Core` only: any engine that offers these few methods can be driven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from elasticfsm.board import Board
from elasticfsm.errors import GroupError

from .agree import StepAgreement
from .deadline import Cancelled
from .experts.placing import Loads, Placements
from .experts.state import ExpertMemory, ExpertState, Mode
from .groups import Generation, Groups
from .weights.choice import Transfers
from .weights.sharing import Meeting, WeightSharing

_WHOLE = "eplb is open"  # cast beside the votes of the spec, with every step
_PLENTY = 1 << 40  # blocks that an engine without a cache offers: it takes what the others have


class Core(Protocol):
    """What an engine core gives to the library."""

    @property
    def memory(self) -> ExpertMemory:
        """Its expert slots and the routing in front of them."""

    def weights(self) -> Mapping[str, Tensor]:
        """All non-expert weights by name, contiguous, alike on all engines."""

    def forward(self, generation: Generation) -> None:
        """One forward step with this generation's groups; every engine of it enters, with or without requests."""

    def has_work(self) -> bool:
        """Whether there is an unfinished request."""

    def cache_blocks(self) -> int:
        """Blocks of its cache; 0 before it has one."""

    def allocate_cache(self, blocks: int) -> None:
        """Allocate a cache of so many blocks; raises ElasticError when memory does not hold it."""

    def prepare(self, generation: Generation, cancelled: Cancelled) -> None:
        """Make ready to step on a generation that is not active yet; in the background, beside forward steps."""

    def hand_over(self) -> None:
        """Stop every request between two steps, and say where each stopped."""


UNTIL_TOLD = 86400.0  # seconds: no deadline that the protocol knows of, and still no wait without end


@dataclass(frozen=True)
class Outcome:
    """Result of a step agreement in the words of the spec."""

    votes: frozenset[str]
    answer: str


class GroupSteps:
    """Steps `groups.*`; with the names of the groups the map of the experts changes, so the switch does both."""

    def __init__(
        self,
        groups: Groups,
        placements: Placements,
        switched: Callable[[], None] = lambda: None,
        join_seconds: float = 10.0,
    ) -> None:
        self.joined = False
        self._groups = groups
        self._placements = placements
        self._join_seconds = join_seconds
        self._switched = switched

    def create(self, name: str, cancelled: Cancelled = None) -> None:
        """Step groups.create: blocks until all members are here."""
        self.joined = False
        self._groups.create(name, cancelled)

    def join(self, name: str, cancelled: Cancelled = None) -> None:
        """Step groups.join: old and new meet; compares operation, generation and expert map.

        Existing engines wait for new ones for seconds at most. Where all members come from the same forward step there
        is no such limit, only that of a step. A new engine waits until it is told to end or a member closes its side:
        once it has contributed the others may hold the result.
        """
        active, coming = self._groups.active, self._groups.need(name)
        if active is None:
            limit: float | None = UNTIL_TOLD
        else:
            limit = self._join_seconds if set(coming.members) - set(active.members) else None
        self._groups.join(name, limit, self._placements.facts(), cancelled)
        self.joined = True

    def switch(self) -> None:
        """Step groups.switch: pointers only."""
        self._groups.switch()
        self._placements.adopt()
        self._switched()
        self.joined = False

    def destroy(self, name: str) -> None:
        """Step groups.destroy: to the reaper; local."""
        self._groups.destroy(name)

    def leave(self, name: str) -> None:
        """Step groups.leave: from here on this engine issues nothing on the groups; they stay until `retire`."""
        self._groups.need(name)


class ForwardSteps:
    """Steps `step.*`: the forward step itself, the agreement that ends it, and the confirmation of a join."""

    def __init__(
        self, core: Core, groups: Groups, steps: GroupSteps, board: Board, within: float, experts: ExpertState
    ) -> None:
        self._experts = experts
        self._core = core
        self._groups = groups
        self._steps = steps
        self._board = board
        self._within = within
        self._agreement: StepAgreement | None = None

    def forward(self, name: str) -> None:
        """Step step.forward; the PlacementError where no step may be taken any more."""
        self._experts.check_whole()
        self._core.forward(self._groups.need(name))

    def agree(self, name: str) -> Outcome:
        """Step step.agree: one all-reduce with work, votes and identity; blocks until all members have entered.

        One vote more says whether the eplb group is open on every member: so all know alike when it must be made anew.
        """
        board, generation = self._board, self._groups.need(name)
        if self._agreement is None:
            self._agreement = StepAgreement((*board.names, _WHOLE))
        agreed = self._agreement.agree(
            generation.dp,
            board.votes | {_WHOLE} if generation.eplb.alive else board.votes,
            board.wanted or self._core.has_work(),
            generation=board.generation,
            operation=board.operation,
            step=board.step,
            within=self._within,
        )
        self._experts.torn = _WHOLE not in agreed.votes
        return Outcome(agreed.votes - {_WHOLE}, "work" if agreed.work else "empty")

    def confirm(self, name: str) -> str:
        """Step step.confirm: whether the join succeeded on every old member; this is the commit point."""
        joined = torch.tensor([int(self._steps.joined)], dtype=torch.int64)
        self._groups.need(name).dp.all_reduce(joined, "min", self._within)
        return "all" if int(joined) else "not_all"


class WeightSteps:
    """Steps `weights.*`, with the cancellation of the list in which they run."""

    def __init__(self, sharing: WeightSharing) -> None:
        self._sharing = sharing
        self._cancelled: Cancelled = None

    def begin(self, meeting: Callable[[Cancelled], Meeting]) -> None:
        """Name the participants of an operation."""
        self._sharing.begin(meeting(self._asked))

    def offer(self) -> None:
        """Step weights.offer."""
        self._sharing.offer()

    def read(self, role: str, cancelled: Cancelled = None) -> None:
        """Step weights.read."""
        self._cancelled = cancelled
        self._sharing.read(role)

    def withdraw(self, role: str, cancelled: Cancelled = None) -> None:
        """Step weights.withdraw."""
        self._cancelled = cancelled
        self._sharing.withdraw(role)

    def forget(self) -> None:
        """Step weights.forget."""
        self._sharing.forget()

    def _asked(self) -> bool:
        cancelled = self._cancelled
        if cancelled is None:
            return False
        return cancelled() if callable(cancelled) else cancelled.is_set()


class CacheSteps:
    """Step cache.agree: existing caches cannot shrink, so the minimum is a demand on new engines only.

    One number more agrees on the transfer of the coming generation: NIXL if every member can use it.
    """

    def __init__(self, core: Core, groups: Groups, transfers: Transfers, within: float = 30.0) -> None:
        self.founding = False  # the first generation: nobody has a cache yet
        self._core = core
        self._groups = groups
        self._transfers = transfers
        self._within = within

    def agree(self, name: str, cancelled: Cancelled = None) -> None:
        """All-reduce MIN of cache blocks on the world group; a new engine then allocates as many, or fails."""
        mine = self._core.cache_blocks()
        bids = torch.tensor([mine or _PLENTY, self._transfers.bid()], dtype=torch.int64)
        self._groups.need(name).world.post_all_reduce(bids, "min").wait(self._within, cancelled)
        blocks, everyone = bids.tolist()
        self._transfers.agreed(everyone)
        if mine or self.founding:
            return
        if blocks == _PLENTY:
            raise GroupError(f"no member of the {name} generation has a cache: nobody serves yet")
        self._core.allocate_cache(blocks)


class GraphSteps:
    """Step graphs.capture: an engine that replays graphs captures those of the coming generation beside serving."""

    def __init__(self, core: Core, groups: Groups) -> None:
        self._core = core
        self._groups = groups

    def capture(self, name: str, cancelled: Cancelled = None) -> None:
        """Blocks while the engine gets ready; touches no peer."""
        self._core.prepare(self._groups.need(name), cancelled)


class LoadSteps:
    """Step load.reduce, which begins a plan: what the plan is for is known from where the operation stands."""

    def __init__(self, loads: Loads, state: ExpertState, mode: Callable[[], tuple[Mode, tuple[str, ...]]]) -> None:
        self._loads = loads
        self._state = state
        self._mode = mode

    def reduce(self, name: str) -> None:
        """Step load.reduce."""
        self._state.aim(*self._mode())
        self._loads.reduce(name)


class PlacementSteps:
    """Steps placement.plan and placement.share."""

    def __init__(self, placements: Placements) -> None:
        self.plan = placements.plan
        self.share = placements.share


class RequestSteps:
    """Step requests.hand_over."""

    def __init__(self, core: Core) -> None:
        self.hand_over = core.hand_over
