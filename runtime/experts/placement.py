"""Where every logical expert lives: one immutable map from physical slots to logical experts, per layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from elasticfsm.errors import PlacementError, RequestRefused

EMPTY = -1
IntArray = npt.NDArray[np.int32]


class PlacementWire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A placement as it travels: `rows` is little-endian int32 [layers, world_size * slots_per_rank]."""

    operation: str
    number: int
    layers: int
    experts: int
    world_size: int
    slots_per_rank: int
    rows: bytes


@dataclass(frozen=True, eq=False)
class Placement:
    """What every physical slot holds: int32 [layers, world_size * slots_per_rank], -1 where a slot is empty.

    Slot p belongs to rank p // slots_per_rank. `operation` and `number` are its version: the operation that
    made it and a counter that grows with every change, so that two ranks can tell which of two is newer.
    The array is copied and made read-only. Raises PlacementError for a wrong shape.
    """

    physical_to_logical: IntArray
    experts: int
    slots_per_rank: int
    operation: str = ""
    number: int = 0
    world_size: int = field(init=False)

    def __post_init__(self) -> None:
        rows: IntArray = np.array(self.physical_to_logical, dtype=np.int32, order="C")
        if rows.ndim != 2 or self.slots_per_rank < 1 or rows.shape[1] % self.slots_per_rank or not rows.shape[1]:
            raise PlacementError(
                f"a placement has shape {rows.shape} with {self.slots_per_rank} slots per rank; "
                "expected [layers, world size * slots per rank]"
            )
        rows.setflags(write=False)
        object.__setattr__(self, "physical_to_logical", rows)
        object.__setattr__(self, "world_size", rows.shape[1] // self.slots_per_rank)

    @classmethod
    def initial(cls, layers: int, experts: int, world_size: int, slots_per_rank: int, operation: str = "") -> Placement:
        """Return the placement of a fresh start: equal shares, then replicas of the experts that follow each share.

        Slots that could only hold a second copy of an expert of the same rank stay empty.
        Raises RequestRefused when the slots are too few.
        """
        refuse_size(world_size, experts, slots_per_rank)
        row = np.full((world_size, slots_per_rank), EMPTY, dtype=np.int32)
        for rank in range(world_size):
            first = rank * experts // world_size
            held = min(slots_per_rank, experts)
            row[rank, :held] = (first + np.arange(held)) % experts
        return cls(np.tile(row.reshape(1, -1), (layers, 1)), experts, slots_per_rank, operation)

    @property
    def layers(self) -> int:
        """Number of MoE layers."""
        return int(self.physical_to_logical.shape[0])

    @property
    def version(self) -> str:
        """Operation id and number in one word, for messages and journals."""
        return f"{self.operation or '-'}.{self.number}"

    @cached_property
    def replicas(self) -> IntArray:
        """Replica counts, int32 [layers, experts]."""
        counts = np.zeros((self.layers, self.experts), dtype=np.int32)
        layer, slot = np.nonzero(self.physical_to_logical != EMPTY)
        np.add.at(counts, (layer, self.physical_to_logical[layer, slot]), 1)
        return counts

    def row(self, layer: int) -> IntArray:
        """Return one layer's map, int32 [world_size * slots_per_rank], read-only."""
        layer_row: IntArray = self.physical_to_logical[layer]
        return layer_row

    def slots(self, layer: int, expert: int) -> list[int]:
        """Return the physical slots that hold an expert in a layer, ascending."""
        return [int(slot) for slot in np.flatnonzero(self.row(layer) == expert)]

    def logical_to_physical(self, layer: int) -> list[list[int]]:
        """Return for every expert of a layer the slots that hold it, ascending."""
        return [self.slots(layer, expert) for expert in range(self.experts)]

    def rank_of(self, slot: int) -> int:
        """Return the rank that owns a physical slot."""
        return slot // self.slots_per_rank

    def ranks_used(self) -> set[int]:
        """Return the ranks that hold at least one expert in some layer."""
        used = (self.physical_to_logical != EMPTY).any(axis=0).reshape(self.world_size, -1).any(axis=1)
        return {int(rank) for rank in np.flatnonzero(used)}

    def check(self, *, duplicates: bool = False) -> Placement:
        """Return self if ids are in range, every expert is covered and (unless asked) no rank holds one twice."""
        rows = self.physical_to_logical
        wrong = np.argwhere((rows < EMPTY) | (rows >= self.experts))
        if len(wrong):
            layer, slot = (int(x) for x in wrong[0])
            raise PlacementError(
                f"layer {layer}, slot {slot} holds expert {rows[layer, slot]}; expected -1 to {self.experts - 1}"
            )
        bare = np.argwhere(self.replicas == 0)
        if len(bare):
            named = ", ".join(f"{layer}/{expert}" for layer, expert in bare[:8])
            raise PlacementError(
                f"placement {self.version} leaves {len(bare)} (layer/expert) without a replica: {named}"
                f"{', ...' if len(bare) > 8 else ''}; every expert needs a slot before its last one is given up"
            )
        if not duplicates:
            self._check_duplicates()
        return self

    def _check_duplicates(self) -> None:
        by_rank = np.sort(self.physical_to_logical.reshape(self.layers, self.world_size, -1), axis=2)
        twice = np.argwhere((by_rank[:, :, 1:] == by_rank[:, :, :-1]) & (by_rank[:, :, 1:] != EMPTY))
        if len(twice):
            layer, rank, at = (int(x) for x in twice[0])
            raise PlacementError(
                f"layer {layer}: rank {rank} holds expert {by_rank[layer, rank, at]} twice; "
                "a second copy on one rank serves nobody"
            )

    def hash(self) -> int:
        """Return a stable 63-bit number of contents and version, to be compared by all ranks through max and min."""
        head = f"{self.operation}|{self.number}|{self.experts}|{self.slots_per_rank}|{self.physical_to_logical.shape}"
        digest = blake2b(head.encode(), digest_size=8)
        digest.update(self.physical_to_logical.astype("<i4").tobytes())
        return int.from_bytes(digest.digest(), "little") >> 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return self.hash()

    def with_rows(self, rows: npt.NDArray[Any], *, operation: str | None = None) -> Placement:
        """Return the next version with other contents (same experts and slots per rank)."""
        made_by = self.operation if operation is None else operation
        return Placement(rows, self.experts, self.slots_per_rank, made_by, self.number + 1)

    def with_row(self, layer: int, row: npt.NDArray[Any]) -> Placement:
        """Return the next version with one layer replaced: what stands after that layer was applied."""
        rows = self.physical_to_logical.copy()
        rows[layer] = row
        return self.with_rows(rows)

    def reseat(self, ranks: Sequence[int | None], *, operation: str | None = None) -> Placement:
        """Return the same experts under other rank numbers: new rank i is old rank ranks[i], or empty for None."""
        known = [rank for rank in ranks if rank is not None]
        if len(set(known)) != len(known) or any(not 0 <= rank < self.world_size for rank in known):
            raise PlacementError(f"ranks {list(ranks)} are no selection of {self.world_size} ranks")
        old = self.physical_to_logical.reshape(self.layers, self.world_size, self.slots_per_rank)
        rows = np.full((self.layers, len(ranks), self.slots_per_rank), EMPTY, dtype=np.int32)
        for new, rank in enumerate(ranks):
            if rank is not None:
                rows[:, new] = old[:, rank]
        return self.with_rows(rows.reshape(self.layers, -1), operation=operation)

    def grow(self, world_size: int, *, operation: str | None = None) -> Placement:
        """Return the same placement with empty slots for the new ranks; nobody moves."""
        if world_size < self.world_size:
            raise PlacementError(f"cannot grow from {self.world_size} to {world_size} ranks; use restrict")
        added: list[int | None] = [None] * (world_size - self.world_size)
        return self.reseat([*range(self.world_size), *added], operation=operation)

    def restrict(self, ranks: Iterable[int], *, operation: str | None = None) -> Placement:
        """Return the placement of the ranks that remain, renumbered in the order given.

        Raises PlacementError when an expert has no replica on them: evacuate first.
        """
        return self.reseat(list(ranks), operation=operation).check(duplicates=True)

    def to_wire(self) -> PlacementWire:
        """Return the struct that travels; msgspec encodes it."""
        rows = self.physical_to_logical.astype("<i4").tobytes()
        shape = (self.layers, self.experts, self.world_size, self.slots_per_rank)
        return PlacementWire(self.operation, self.number, *shape, rows)

    @classmethod
    def from_wire(cls, wire: PlacementWire) -> Placement:
        """Return the placement that a peer sent; raises PlacementError when it contradicts itself."""
        width = wire.world_size * wire.slots_per_rank
        if min(wire.layers, width) < 1 or len(wire.rows) != 4 * wire.layers * width:
            raise PlacementError(
                f"a placement of {wire.layers} layers and {width} slots came with {len(wire.rows)} bytes; "
                f"expected {4 * wire.layers * width}"
            )
        rows = np.frombuffer(wire.rows, dtype="<i4").reshape(wire.layers, width)
        return cls(rows, wire.experts, wire.slots_per_rank, wire.operation, wire.number)


def minimum_ranks(experts: int, slots_per_rank: int) -> int:
    """Return the smallest world size whose slots hold every expert once."""
    if experts < 1 or slots_per_rank < 1:
        raise RequestRefused(f"{experts} experts in {slots_per_rank} slots per rank: both must be at least 1")
    return -(-experts // slots_per_rank)


def refuse_size(world_size: int, experts: int, slots_per_rank: int, maximum: int | None = None) -> None:
    """Raise RequestRefused unless `world_size` ranks can hold the experts; the text names the sizes that can."""
    least = minimum_ranks(experts, slots_per_rank)
    if least <= world_size and (maximum is None or world_size <= maximum):
        return
    valid = f"{least} and more" if maximum is None else f"{least} to {maximum}" if maximum >= least else "none"
    if world_size < 1:
        found = f"size {world_size} is not a number of engines"
    elif world_size < least:
        have = world_size * slots_per_rank
        found = f"size {world_size} is too small: {world_size} x {slots_per_rank} slots = {have} for {experts} experts"
    else:
        found = f"size {world_size} is larger than allowed ({maximum})"
    raise RequestRefused(f"{found}; the smallest valid size is {least}, valid sizes: {valid}")
