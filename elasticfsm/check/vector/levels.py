"""The graph that the vectorised explorer builds: what `Graph` is for the plain one, kept in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticfsm.check.explore import Graph
from elasticfsm.check.vector.kinds import Column, Kind, Whole
from elasticfsm.check.vector.visited import Visited
from elasticfsm.check.world import State


class States:
    """The states that were reached, as the tuples that the plain explorer uses; unpacked when asked for."""

    def __init__(self, visited: Visited, kinds: list[Kind]) -> None:
        self._visited, self._kinds = visited, kinds

    def __len__(self) -> int:
        return self._visited.count

    def __getitem__(self, place: int) -> State:
        row = self._visited.columns(place, place + 1)
        return self.row(self._kinds, [int(column[0]) for column in row])

    def __iter__(self) -> Iterator[State]:
        return (self[place] for place in range(len(self)))

    def column(self, place: int) -> Iterator[Column]:
        """One number of every state, a million states at a time."""
        for start in range(0, len(self), 1 << 20):
            yield self._visited.columns(start, min(start + (1 << 20), len(self)))[place]

    @staticmethod
    def row(kinds: Sequence[Kind], numbers: Sequence[int]) -> State:
        """One row as a state."""
        return tuple(
            kind.values[number] if isinstance(kind, Whole) else number
            for kind, number in zip(kinds, numbers, strict=True)
        )


@dataclass
class Edges:
    """All transitions, in the order in which they were found: from where, to where, who chose them."""

    sources: list[NDArray[np.int32]] = field(default_factory=list)
    targets: list[NDArray[np.int32]] = field(default_factory=list)
    tags: list[NDArray[np.uint16]] = field(default_factory=list)
    count: int = 0

    def add(self, sources: Column, targets: Column, tags: NDArray[np.uint16]) -> None:
        """Appends some."""
        self.sources.append(sources.astype(np.int32))
        self.targets.append(targets.astype(np.int32))
        self.tags.append(tags.astype(np.uint16))
        self.count += len(sources)


@dataclass
class Levels(Graph):
    """A graph in columns. `found` holds its states, `edges` its transitions."""

    found: Any = None
    edges: Edges = field(default_factory=Edges)

    @property
    def transitions(self) -> int:
        """How many transitions were explored."""
        return self.edges.count

    def locals(self) -> set[int]:
        """The numbers of all local states that stand in some state."""
        used: set[int] = set()
        for place in range(1, self.world.count + 1):
            for column in self.found.column(place):
                used.update(np.unique(column).tolist())
        return used

    def standing(self, numbers: set[int]) -> list[int]:
        """The states in which some engine has one of these local states, in order."""
        wanted = np.array(sorted(numbers), np.intp)
        found = np.zeros(len(self.found), bool)
        for place in range(1, self.world.count + 1):
            start = 0
            for column in self.found.column(place):
                found[start : start + len(column)] |= np.isin(column, wanted)
                start += len(column)
        return np.flatnonzero(found).tolist()

    def leaving(self, tags: int) -> list[int]:
        """The states out of which a transition with one of these tags leads, in order."""
        marked = np.zeros(len(self.found), bool)
        for sources, found in zip(self.edges.sources, self.edges.tags, strict=True):
            marked[sources[found & tags != 0]] = True
        return np.flatnonzero(marked).tolist()

    def backwards(self, goals: Iterable[int], closed: int) -> bytearray:
        """For each state 1 if a goal can be reached without a transition that has one of the tags `closed`."""
        reached = np.zeros(len(self.found), bool)
        front: Column = np.array(list(goals), np.intp)
        reached[front] = True
        starts, sources, tags = self._by_target
        while front.size:
            counts = starts[front + 1] - starts[front]
            ends = np.cumsum(counts)
            at = np.arange(int(ends[-1])) + np.repeat(starts[front] - ends + counts, counts)
            before = sources[at[tags[at] & closed == 0]]
            before = np.unique(before[~reached[before]])
            reached[before] = True
            front = before.astype(np.intp)
        return bytearray(reached.view(np.uint8).tobytes())

    def forwards(self, closed: int) -> bytearray:
        """For each state 1 if it can be reached from the first one without such a transition."""
        reached = np.zeros(len(self.found), bool)
        reached[0] = True
        before = -1
        while int(np.count_nonzero(reached)) != before:  # levels follow each other, so two or three rounds do
            before = int(np.count_nonzero(reached))
            for sources, targets, tags in zip(self.edges.sources, self.edges.targets, self.edges.tags, strict=True):
                use = reached[sources] & (tags & closed == 0)
                reached[targets[use]] = True
        return bytearray(reached.view(np.uint8).tobytes())

    @cached_property
    def _by_target(self) -> tuple[Column, NDArray[np.int32], NDArray[np.uint16]]:
        """The transitions sorted by target: where each target's begin, their sources and tags."""
        targets = np.concatenate(self.edges.targets) if self.edges.targets else np.zeros(0, np.int32)
        order = np.argsort(targets, kind="stable")
        starts = np.zeros(len(self.found) + 1, np.intp)
        np.cumsum(np.bincount(targets, minlength=len(self.found)), out=starts[1:])
        del targets
        sources = np.concatenate(self.edges.sources)[order] if order.size else np.zeros(0, np.int32)
        tags = np.concatenate(self.edges.tags)[order] if order.size else np.zeros(0, np.uint16)
        return starts, sources, tags
