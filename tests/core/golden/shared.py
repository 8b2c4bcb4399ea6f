"""Self-tests of the search: mutual exclusion, dining philosophers, termination detection on a ring.

After tlaplus/Examples: locks_auxiliary_vars (Peterson's algorithm) and ewd840 (Dijkstra, Feijen, van Gasteren, 1983).
The philosophers are derived: every fork lies, or is held from the left, or from the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from .model import Model, put


class Peterson(NamedTuple):
    """The next line of each of two processes, who is interested, and whose turn it is."""

    at: tuple[int, int] = (0, 0)
    wants: tuple[bool, bool] = (False, False)
    turn: int = 0


CRITICAL = (4, 5)


def peterson() -> Model:
    """Two processes; lines 4 and 5 are the critical section."""
    return Model(lambda: [Peterson()], _peterson)


def _peterson(state: Peterson) -> Iterator[Peterson]:
    for me, line in enumerate(state.at):
        other = 1 - me
        changed = state
        if line == 1:
            changed = state._replace(wants=put(state.wants, me, True))
        elif line == 2:
            changed = state._replace(turn=other)
        elif line == 3 and state.wants[other] and state.turn != me:
            continue
        elif line == 5:
            changed = state._replace(wants=put(state.wants, me, False))
        yield changed._replace(at=put(state.at, me, (line + 1) % 6))


LIES, LEFT, RIGHT = 0, 1, 2  # a fork: free, or held by the philosopher on its left or on its right


def philosophers(count: int) -> Model:
    """Each takes its forks in any order and puts both down again; philosopher i sits between forks i and i + 1."""

    def successors(forks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for me in range(count):
            mine, next_ = forks[me], forks[(me + 1) % count]
            if mine == LIES:
                yield put(forks, me, RIGHT)
            if next_ == LIES:
                yield put(forks, (me + 1) % count, LEFT)
            if mine == RIGHT and next_ == LEFT:
                yield put(put(forks, me, LIES), (me + 1) % count, LIES)

    return Model(lambda: [(LIES,) * count], successors)


class Ring(NamedTuple):
    """Which nodes are active, which are black, where the token is and whether it is black."""

    active: tuple[bool, ...]
    black: tuple[bool, ...]
    token: int
    tainted: bool


def ring(count: int) -> Model:
    """Termination detection on a ring; it begins with any nodes active and black and the token, black, anywhere."""

    def initial() -> Iterator[Ring]:
        bits = list(product((False, True), repeat=count))
        for active, black, token in product(bits, bits, range(count)):
            yield Ring(active, black, token, True)

    return Model(initial, _ring)


def _ring(state: Ring) -> Iterator[Ring]:
    active, black, token, tainted = state
    count = len(active)
    if token == 0 and (tainted or black[0]):
        yield state._replace(token=count - 1, tainted=False, black=put(black, 0, False))
    if token and (not active[token] or black[token] or tainted):
        then = tainted or black[token]
        yield state._replace(token=token - 1, tainted=then, black=put(black, token, False))
    for me in range(count):
        if not active[me]:
            continue
        yield state._replace(active=put(active, me, False))
        for other in range(count):
            if other != me:
                yield state._replace(active=put(active, other, True), black=put(black, me, black[me] or other > me))


def detected(state: Ring) -> bool:
    """Node 0 knows that everybody is idle."""
    quiet = not state.black[0] and not state.tainted and not state.active[0]
    return state.token == 0 and quiet
