"""The steps `load.*` and `placement.*`: measure, decide once, and let every rank have the same map."""

from __future__ import annotations

import numpy as np
import torch

from elasticfsm.errors import PlacementError

from ..groups import Generation
from ..identity import spread
from .placement import IntArray, Placement
from .plan import DEFAULT_POLICY, LoadArray, plan
from .policy.settings import Policy
from .policy.stages import ordered
from .state import ExpertState

_ABSENT = -(1 << 62)  # what a rank without a placement contributes to a MAX
_REFUSED, _NOTHING, _MOVES = -1, 0, 1
_KINDS = {"nixl": 1, "p2p": 2}


class Loads:
    """Adapter of `load.reduce`."""

    def __init__(self, state: ExpertState) -> None:
        self._state = state
        self.total: LoadArray | None = None  # int64 [layers, experts] over all ranks

    def reduce(self, name: str) -> None:
        """Step load.reduce: sum the loads over the eplb group; all ranks, blocks until all have entered.

        Two numbers more say how many ranks failed in the last rebalance, and on how many the device's group for rows
        is closed: then all go on under new agent names, and on a new group. An eplb group that a rebalance left closed
        is made anew first; GroupError when that, or the sum, fails.
        """
        state = self._state
        if state.target is not None:
            state.end(failed=True)  # the one before broke off
        state.planned()
        state.mend(name)
        local = state.memory.recent_loads().to("cpu", torch.int64).reshape(-1)
        tensor = torch.cat([local, torch.tensor([int(state.failed), int(state.rows_closed(name))])])
        state.members(name).eplb.all_reduce(tensor, "sum", state.seconds)
        if int(tensor[-2]):
            state.renew(name)
        if int(tensor[-1]):
            state.renew_rows(name)
        self.total = tensor[:-2].reshape(state.layers, state.experts).numpy()

    def need(self) -> LoadArray:
        """The reduced loads, alike on all ranks; PlacementError before there are any."""
        if self.total is None:
            raise PlacementError("no loads were reduced before the plan")
        return self.total


class Placements:
    """Adapter of `placement.plan` and `placement.share`; `adopt` and `revert` go with the switch of the groups."""

    def __init__(self, state: ExpertState, loads: Loads, policy: Policy = DEFAULT_POLICY) -> None:
        self._state = state
        self._loads = loads
        self.policy = policy

    def plan(self, name: str) -> str:
        """Step placement.plan: rank 0 computes the target, all compare its hash; answers "moves" or "nothing".

        Main loop of every rank, between two steps; blocks until all have entered. Raises PlacementError on every
        rank alike when no placement is possible, IdentityMismatch when ranks disagree.
        """
        state = self._state
        generation = state.members(name)
        answer, target = self._broadcast(generation)
        described = state.transfer.describe(state.regions()) if answer else b""
        facts = {"placement": state.current().hash(), "target": target.hash(), "transfer": _KINDS[state.transfer.kind]}
        extra = [len(described), *state.bids()]
        state.offer_bytes, *largest = state.agree(facts, f"plan on {generation.eplb.label}", generation.eplb, extra)
        state.heard(largest)
        if state.renewed:  # on all ranks, as the agreement shows: what was read from their old agents is quiet now
            state.renewed = False
            for member in generation.members:
                state.transfer.settle(member)
        if answer == _NOTHING:
            return "nothing"
        state.target, state.pending = target, ordered(state.current(), target, self._loads.need())
        return "moves"

    def share(self, name: str) -> None:
        """Step placement.share: every member of a coming generation learns the map, renumbered for its ranks.

        Blocks until all have entered. Who holds the placement contributes it, new engines contribute nothing;
        one MAX of x and -x carries the map and shows whether two ranks hold different ones (IdentityMismatch).
        """
        state = self._state
        generation = state.members(name)
        width = generation.world_size * state.slots_per_rank
        mine = self._reseated(generation)
        count = 1 + state.layers * width
        values = [mine.number, *mine.physical_to_logical.reshape(-1).tolist()] if mine else []
        tensor = torch.tensor(spread(values) if mine else [_ABSENT] * (2 * count), dtype=torch.int64)
        generation.dp.all_reduce(tensor, "max")
        high, low = tensor[0::2], -tensor[1::2]
        if int(high[0]) == _ABSENT:
            raise PlacementError(f"no member of {name} holds a placement to share: {', '.join(generation.members)}")
        if not torch.equal(high, low):
            raise PlacementError(f"the members of {name} hold different placements; the rebalance was not drained")
        rows: IntArray = high[1:].reshape(state.layers, width).numpy().astype(np.int32)
        made_by = generation.operation
        state.shared = Placement(rows, state.experts, state.slots_per_rank, made_by, int(high[0])).check()

    def facts(self) -> dict[str, int]:
        """Return what the join of the coming generation compares: the hash of the map that was shared."""
        return {"placement": self._state.shared.hash()} if self._state.shared else {}

    def adopt(self) -> None:
        """Put the shared placement in force, with the switch; local, the old one is kept for `revert`."""
        state = self._state
        if state.shared is None:
            raise PlacementError("no placement was shared for the new generation")
        if state.staged is not None:
            raise PlacementError(f"a row of layer {state.pending[0]} waits beside its slot: drain the rebalance first")
        before, state.shared = (state.placement, state.shared), None
        state.transfers.switch()
        state.transfers.keep(state.members("active").members)
        state.install(before[1])
        state.before = before[0]
        state.ended(state, "switch")

    def revert(self) -> None:
        """Go back to the placement before `adopt`, with the groups; only while no row has moved since."""
        state = self._state
        if state.before is None:
            raise PlacementError("there is no placement to go back to")
        state.install(state.before)
        state.before = None

    def _reseated(self, coming: Generation) -> Placement | None:
        state = self._state
        active = state.generation("active")
        if state.placement is None or active is None:
            return None
        old = {member: rank for rank, member in enumerate(active.members)}
        ranks = [old.get(member) for member in coming.members]
        return state.placement.reseat(ranks, operation=coming.operation)

    def _broadcast(self, generation: Generation) -> tuple[int, Placement]:
        """Return what rank 0 decided: (answer, target); one broadcast of fixed size."""
        state, current = self._state, self._state.current()
        tensor = torch.zeros(1 + current.physical_to_logical.size, dtype=torch.int32)
        refusal: PlacementError | None = None
        if generation.rank == 0:
            try:
                decided = self._decide(generation)
                tensor[0] = _NOTHING if decided is current else _MOVES
                tensor[1:] = torch.from_numpy(decided.physical_to_logical.reshape(-1).copy())
            except PlacementError as error:
                tensor[0], refusal = _REFUSED, error
        generation.eplb.broadcast(tensor, 0)
        answer = int(tensor[0])
        if answer == _REFUSED:
            raise refusal or PlacementError(f"rank 0 found no placement to {state.mode} experts; see its journal")
        if answer == _NOTHING:
            return answer, current
        return answer, current.with_rows(tensor[1:].reshape(current.physical_to_logical.shape).numpy()).check()

    def _decide(self, generation: Generation) -> Placement:
        state, loads = self._state, self._loads.need()
        leaving = state.removing_ranks(generation) if state.mode == "evacuate" else set()
        allowed = [rank for rank in range(generation.world_size) if rank not in leaving]
        return plan(state.current(), loads, allowed, self.policy)
