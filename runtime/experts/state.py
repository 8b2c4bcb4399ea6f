"""What the steps of a rebalance share in one engine, and what they need of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from elasticfsm.errors import GroupError, PlacementError

from ..deadline import Cancelled
from ..group import Group
from ..groups import Generation, Renewed
from ..identity import check_equal, spread
from ..weights.choice import Transfers
from ..weights.regions import as_bytes
from ..weights.transfer import Transfer
from .placement import IntArray, Placement
from .plan import Move, row_moves
from .policy.stages import parts

if TYPE_CHECKING:
    from .reads import Reads

Mode = Literal["spread", "evacuate"]
RENEW_SECONDS = 5.0  # for all members to meet on a new group; they come from the same collective


class ExpertMemory(Protocol):
    """The expert weights of one engine, in slots, and the routing table in front of them."""

    def slot_tensors(self, layer: int, slot: int) -> list[Tensor]:
        """Return contiguous views of one local slot (0 to slots_per_rank - 1); number and shapes equal for all."""
        ...

    def set_routing(self, layer: int, physical_to_logical: IntArray) -> None:
        """Route a layer by int32 [world_size * slots_per_rank] from the next step on; called between two steps."""
        ...

    def recent_loads(self) -> Tensor:
        """Return int64 [layers, experts], the tokens that this rank routed in the last steps of its window."""
        ...


@dataclass
class Staged:
    """One row that lies beside its slot: local slot, logical expert, tensors."""

    slot: int
    expert: int
    tensors: list[Tensor]


@dataclass(frozen=True)
class Part:
    """What one agreement puts in place: contents `now` of a layer, int32 [world_size * slots], and the moves to it."""

    layer: int
    now: IntArray
    moves: list[Move]
    last: bool  # of its layer


@dataclass
class Tally:
    """What happened to experts since the engine started; for status and reports, read by any thread."""

    layers: int = 0  # applied
    rows: int = 0  # slots of this engine that got another expert
    rebalances: int = 0  # came to their last layer
    broken: int = 0  # given up by all members
    checked: int = 0  # (layer, slot) compared with the checkpoint
    wrong: int = 0


@dataclass
class ExpertState:
    """The placement in force and the rebalance under way; main loop and worker use it in turns, never together.

    `budget` bounds the bytes of rows that arrive beside one forward step, on all ranks together (0: a layer at a time):
    a layer is then cut into parts, of which each is read, agreed on and put in place like a layer.

    `generation` returns the generation called "active" or "standby", or None. `seconds` bound one layer, `patience`
    (0: as long) the wait for a member that is slow between two steps. From `applying` on until all have settled,
    members may route by different maps: whoever has to take a step then must not. `ended` is called when a
    rebalance has ended or a generation was adopted: rows and map agree then, on the main loop. `planned` is called
    by every member after the same step, when a plan begins. With a plan the members also exchange numbers of their
    own: `bids` gives mine, `heard` gets the largest of all. `torn` is what the last step agreed on: whether the eplb
    group is closed on any member.
    """

    engine: str
    memory: ExpertMemory
    transfers: Transfers
    generation: Callable[[str], Generation | None]
    layers: int
    experts: int
    slots_per_rank: int
    seconds: float = 20.0
    patience: float = 0.0
    budget: int = 0
    ended: Callable[[ExpertState, str], None] = lambda state, why: None
    planned: Callable[[], None] = lambda: None
    bids: Callable[[], Sequence[int]] = tuple
    heard: Callable[[Sequence[int]], None] = lambda largest: None
    renew_group: Callable[[str, Renewed, float], None] = lambda name, kind, within: None
    tally: Tally = field(default_factory=Tally)
    placement: Placement | None = None
    shared: Placement | None = None
    before: Placement | None = None
    mode: Mode = "spread"
    removing: Sequence[str] = ()
    still: bool = False
    applying: bool = False
    failed: bool = False
    renewed: bool = False
    torn: bool = False
    why: str = ""
    target: Placement | None = None
    pending: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    staged: list[Staged] | None = None
    checksums: list[int] = field(default_factory=list)
    offers: dict[str, bytes] = field(default_factory=dict)
    offer_bytes: int = 0
    reads: Reads | None = None

    @property
    def transfer(self) -> Transfer:
        """The transfer that the members of the active generation agreed on."""
        return self.transfers.active

    def aim(self, mode: Mode, removing: Sequence[str] = ()) -> None:
        """Say what the next plans are for: spread the load, or empty the engines that leave."""
        self.mode, self.removing = mode, tuple(removing)

    def offer(self) -> None:
        """Make all expert slots readable for peers, once in the life of the engine, before it serves.

        Slots never change their address, so nothing is registered on the main loop of a serving engine. It revokes
        nothing anyway to deregister: what orders reads and writes is the vote on each layer.
        """
        for transfer in self.transfers.all:
            for layer in range(self.layers):
                slots = [self.memory.slot_tensors(layer, slot) for slot in range(self.slots_per_rank)]
                transfer.offer(region(layer), [tensor for kind in zip(*slots, strict=True) for tensor in kind])

    def regions(self) -> list[str]:
        """Return the names under which the slots of all layers are offered."""
        return [region(layer) for layer in range(self.layers)]

    def members(self, name: str) -> Generation:
        """Return a generation that must exist."""
        found = self.generation(name)
        if found is None:
            raise PlacementError(f"engine {self.engine} has no {name} generation")
        return found

    def current(self) -> Placement:
        """Return the placement in force, which must exist."""
        if self.placement is None:
            raise PlacementError(f"engine {self.engine} has no placement yet: share or install one first")
        return self.placement

    def install(self, placement: Placement) -> None:
        """Put a placement in force and route every layer by it; between two steps, nothing is moved."""
        expected = (self.layers, self.experts, self.slots_per_rank)
        if (placement.layers, placement.experts, placement.slots_per_rank) != expected:
            raise PlacementError(f"a placement of another model: expected layers, experts, slots {expected}")
        placement.check(duplicates=True)
        for layer in range(placement.layers):
            self.memory.set_routing(layer, placement.row(layer))
        self.placement = placement

    def check_whole(self) -> None:
        """Raise PlacementError when a layer was put in place here and perhaps not everywhere."""
        if self.applying:
            raise PlacementError(
                "a layer of experts was put in place and not all engines said so: their maps may differ"
            )

    def removing_ranks(self, generation: Generation) -> set[int]:
        """Return the ranks of the engines that leave."""
        return {rank for rank, member in enumerate(generation.members) if member in self.removing}

    def end(self, failed: bool = False) -> None:
        """End the rebalance under way; if it failed, applied layers stay and the rest waits for the next plan.

        Peers stay connected: whoever closes a connection and makes it anew leaves a socket behind each time.
        """
        self.transfer.rest(self.regions())
        if self.reads is not None:
            self.reads.release()
        self.offers, self.checksums, self.staged, self.reads = {}, [], None, None
        self.target, self.pending, self.parts = None, [], []
        self.failed = self.failed or failed
        self.tally.broken += failed
        self.tally.rebalances += not failed
        self.ended(self, "broken" if failed else "rebalance")

    def renew(self, name: str) -> None:
        """Go on under names, and on a group for rows, that no failed read has touched; all members after the same step.

        Blocks for seconds at most, and only by p2p. When the group cannot be made no row moves until the next one can,
        which every read says in a TransferError; serving goes on.
        """
        self.transfer.renew()
        self.failed, self.renewed = False, True
        if self.transfer.kind == "p2p":
            with suppress(GroupError):
                self.renew_group(name, "world", RENEW_SECONDS)

    def rows_closed(self, name: str) -> bool:
        """Whether this generation has a group of the device for rows, and it is closed here."""
        rows = self.members(name).rows
        return rows is not None and not rows.alive

    def renew_rows(self, name: str) -> None:
        """Make the group of the device for rows anew, which was closed on some member; all members after the same step.

        Blocks for seconds at most. When it cannot be made, rows go by NIXL, which every plan says.
        """
        try:
            self.renew_group(name, "rows", RENEW_SECONDS)
        except GroupError as error:
            self.transfers.say(f"rows.{name} was closed and cannot be made anew: {error}")

    def mend(self, name: str) -> None:
        """Make the eplb group anew if it was closed on any member, as all members learnt from the same step.

        Blocks for seconds at most. GroupError when it cannot be made: no expert moves then until an operation begins
        a plan again, which tries it once more.
        """
        if not self.torn:
            return
        try:
            self.renew_group(name, "eplb", RENEW_SECONDS)
        except GroupError as error:
            raise GroupError(f"eplb.{name} was closed and cannot be made anew, so experts stay: {error}") from error
        self.torn = False

    def part(self) -> Part:
        """Return what is to be moved now, alike on every rank; cuts what was not cut: all layers, with a budget one."""
        if self.target is None or not self.pending:
            raise PlacementError("no layer is to be moved: plan first")
        if not self.parts:
            target, layers = self.target, self.pending[:1] if self.budget else self.pending
            self.parts = [part for layer in layers for part in self._cut(layer, target)]
        return self.parts[0]

    def _cut(self, layer: int, target: Placement) -> list[Part]:
        was, per_rank = self.current().row(layer), self.slots_per_rank
        rows = [target.row(layer)]
        if self.budget:
            most = max(1, self.budget // sum(as_bytes(tensor).numel() for tensor in self.memory.slot_tensors(layer, 0)))
            found = parts(was.reshape(-1, per_rank), rows[0].reshape(-1, per_rank), self.experts, most)
            rows = [row.reshape(-1) for row in found]
        befores = [was, *rows[:-1]]
        made = [row_moves(layer, before, now, per_rank) for before, now in zip(befores, rows, strict=True)]
        return [Part(layer, now, each, now is rows[-1]) for now, each in zip(rows, made, strict=True)]

    def agree(
        self,
        values: dict[str, int],
        where: str,
        group: Group,
        extra: Sequence[int] = (),
        cancelled: Cancelled = None,
        within: float = 0.0,
    ) -> list[int]:
        """Compare values over all ranks of a Group and return the largest of each of `extra`: one all-reduce."""
        tensor = torch.tensor([*spread(list(values.values())), *extra], dtype=torch.int64)
        group.post_all_reduce(tensor, "max").wait(within or self.seconds, cancelled)
        reduced: list[int] = tensor.tolist()
        check_equal(reduced, list(values), list(values.values()), where)
        return reduced[2 * len(values) :]


def region(layer: int) -> str:
    """Return the name under which the expert slots of a layer are offered."""
    return f"experts/{layer}"
