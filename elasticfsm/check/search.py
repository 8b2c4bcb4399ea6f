"""Breadth-first search over any transition system, with parent pointers: the first path to a state is a shortest."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
M = TypeVar("M")

TOLD_EVERY = 1 << 14  # states between two calls of `progress`


@dataclass
class Reached(Generic[S]):
    """Every state that was reached. The edges of state i lead to targets[offsets[i]:offsets[i + 1]]."""

    states: list[S] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("l"))
    offsets: array[int] = field(default_factory=lambda: array("l", [0]))
    targets: array[int] = field(default_factory=lambda: array("l"))
    complete: bool = True

    def path(self, place: int) -> list[S]:
        """The states on a shortest path from an initial one to this one."""
        found = []
        while place >= 0:
            found.append(self.states[place])
            place = self.parents[place]
        return found[::-1]

    def depth(self) -> int:
        """How many states lie on the longest of the shortest paths."""
        return len(self.path(len(self.states) - 1)) if self.states else 0

    def ends(self) -> Iterator[int]:
        """The states without a way out."""
        return (place for place in range(len(self.offsets) - 1) if self.offsets[place] == self.offsets[place + 1])


def search(
    initial: Iterable[S],
    moves: Callable[[S], Sequence[M]],
    target: Callable[[M], S],
    look: Callable[[int, S, Sequence[M]], None] | None = None,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    into: Reached[S] | None = None,
    ended: Callable[[], bool] | None = None,
) -> Reached[S]:
    """Explores to the end, until more than `limit` states were found, or until `ended` says so after a state.

    `moves` lists what is possible in a state, `target` says where a move leads: to the state itself, or to a canonical
    form of it. `look` sees every state once, with its number and all its moves. Raises what these raise.
    """
    reached: Reached[S] = Reached() if into is None else into
    states, parents, targets, offsets = reached.states, reached.parents, reached.targets, reached.offsets
    index: dict[S, int] = {}
    for state in initial:
        if state not in index:
            index[state] = len(states)
            states.append(state)
            parents.append(-1)
    with _no_collector():
        place = 0
        while place < len(states):
            found = moves(states[place])
            if look is not None:
                look(place, states[place], found)
            for move in found:
                state = target(move)
                number = index.get(state)
                if number is None:
                    number = index[state] = len(states)
                    states.append(state)
                    parents.append(place)
                targets.append(number)
            offsets.append(len(targets))
            place += 1
            if progress is not None and not place % TOLD_EVERY:
                progress(len(states))
            if (limit is not None and len(states) > limit) or (ended is not None and ended()):
                reached.complete = False
                break
    return reached


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of small tuples without cycles: the collector would only slow the search down."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
