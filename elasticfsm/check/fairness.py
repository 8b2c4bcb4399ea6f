"""Fair runs that never come to a goal, in any transition system: strong components after the goals were taken out.

Weak fairness: what stays enabled from some moment on is taken again and again. Strong: what is enabled again and again
is. A run that is fair and avoids the goals for ever ends in a component without goals in which every class that must be
taken is taken. Goals are taken out first: a component that has one may still have a cycle beside it. (Emerson and Lei
1987; classes of strong fairness as Streett pairs, components are looked at again without the states that enable what is
not taken.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """A step to a state; `fair` names the class that must not be forgotten for ever, None: nobody owes it."""

    target: int
    fair: Hashable | None = None
    strong: bool = False


Edges = Callable[[int], Sequence[Edge]]


def fair_component(states: Iterable[int], edges: Edges, goals: Iterable[int]) -> set[int] | None:
    """States in which a fair run may stay for ever without a goal; None if every fair run from these comes to one.

    A run may also stop for ever, in a state in which nothing fair is enabled.
    """
    away = set(goals)
    work = [{state for state in states if state not in away}]
    while work:
        for component in _components(work.pop(), edges):
            found = _fair(component, edges)
            if found is None:
                continue
            if found == component:
                return component
            work.append(found)
    return None


def _fair(component: set[int], edges: Edges) -> set[int] | None:
    """The component itself if a fair run may stay in it, a part of it that is left to look at, or None."""
    taken: set[Hashable] = set()
    always: set[Hashable] | None = None
    enabling: dict[Hashable, set[int]] = {}
    cyclic = False
    for state in component:
        here: set[Hashable] = set()
        for edge in edges(state):
            inside = edge.target in component
            cyclic = cyclic or inside
            if edge.fair is None:
                continue
            if inside:
                taken.add(edge.fair)
            if edge.strong:
                enabling.setdefault(edge.fair, set()).add(state)
            else:
                here.add(edge.fair)
        always = here if always is None else always & here
    if (always or set()) - taken:
        return None
    missed = [states for fair, states in enabling.items() if fair not in taken]
    if missed:
        rest = component.difference(*missed)
        return rest or None
    return component if cyclic or not taken else None


def _components(states: set[int], edges: Edges) -> list[set[int]]:
    """The strong components of the graph between these states (Tarjan 1972, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    found: list[set[int]] = []
    for root in states:
        if root in index:
            continue
        work = [(root, iter(edges(root)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            state, ahead = work[-1]
            for edge in ahead:
                target = edge.target
                if target not in states:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on.add(target)
                    work.append((target, iter(edges(target))))
                    break
                if target in on:
                    low[state] = min(low[state], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])
                if low[state] == index[state]:
                    found.append(_popped(stack, on, state))
    return found


def _popped(stack: list[int], on: set[int], root: int) -> set[int]:
    component: set[int] = set()
    while root not in component:
        state = stack.pop()
        on.discard(state)
        component.add(state)
    return component
