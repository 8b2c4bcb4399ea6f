"""A barrier, one built from semaphores and two waiting chambers, and rows of collectives as this project counts them.

After tlaplus/Examples, specifications/barriers (Barrier, Barriers). Two chambers are what a two-staged
barrier on a store is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .model import Model, put


def barrier(count: int) -> Model:
    """Everybody arrives; when all have, all leave at once."""

    def successors(state: tuple[bool, ...]) -> Iterator[tuple[bool, ...]]:
        for place, arrived in enumerate(state):
            if not arrived:
                yield put(state, place, True)
        if all(state):
            yield (False,) * count

    return Model(lambda: [(False,) * count], successors)


class Chambers(NamedTuple):
    """The next line of each process, a lock, the semaphores of two gates, and how many are inside."""

    at: tuple[int, ...]
    free: bool = True
    first: int = 0
    second: int = 0
    inside: int = 0


def chambers(count: int) -> Model:
    """A barrier that can be used again: nobody gets round before all have left the first chamber."""

    def successors(state: Chambers) -> Iterator[Chambers]:
        for place, line in enumerate(state.at):
            after = _line(state, line, count)
            if after is not None:
                then, changed = after
                yield changed._replace(at=put(state.at, place, then))

    return Model(lambda: [Chambers((0,) * count)], successors)


def _line(state: Chambers, line: int, count: int) -> tuple[int, Chambers] | None:
    """Runs one line: the one that follows it and what changed; None if it must wait. Lines 7 to 12 mirror 1 to 6."""
    entering, at = line < 7, line if line < 7 else line - 6
    then, changed = line + 1, state
    if (at == 1 and not state.free) or (line == 6 and not state.first) or (line == 12 and not state.second):
        return None
    if at in (1, 5):
        changed = state._replace(free=at == 5)
    elif at == 2:
        changed = state._replace(inside=state.inside + (1 if entering else -1))
    elif at == 3:
        then = line + (1 if state.inside == (count if entering else 0) else 2)
    elif at in (4, 6):
        by = count if at == 4 else -1
        changed = state._replace(first=state.first + by) if entering else state._replace(second=state.second + by)
    return then % 13, changed


def collectives(rows: int, count: int) -> Model:
    """Engines that enter and leave one collective after the other; odd: inside. Nobody leaves before all entered."""

    def successors(state: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for place, at in enumerate(state):
            if at < 2 * rows and (not at % 2 or min(state) >= at):
                yield put(state, place, at + 1)

    return Model(lambda: [(0,) * count], successors, canonical=lambda state: tuple(sorted(state)))


def collectives_in_closed_form(rows: int, count: int) -> tuple[int, int]:
    """How many states, and how many orbits under exchange of engines."""
    pairs = (count + 2) * (count + 1) // 2
    return 2 ** (count + 1) - 1 + (rows - 1) * (3**count - 1), 2 * count + 1 + (rows - 1) * (pairs - 1)
