"""The main path of a machine: how it goes when nothing fails, expires or is cancelled."""

from __future__ import annotations

from elasticfsm.protocol import Leave, Machine, State

_TROUBLE = ("failed", "expired")


def main_path(machine: Machine) -> list[tuple[str, Leave]]:
    """The states on the main path, each with the leave that ends it.

    It prefers the first listed leave that leads somewhere new, and only goes where the goal stays within reach: the end
    `done`, or for a machine that lives on, the state in which it began.
    """
    goal = "done" if "done" in machine.states else machine.first
    near = _reaching(machine, goal)
    path: list[tuple[str, Leave]] = []
    here, seen = machine.first, {machine.first}
    while ways := [way for way in own_leaves(machine.states[here]) if way.target in near]:
        way = next((way for way in ways if way.target not in seen), ways[0])
        if path.count((here, way)) > 1:
            break
        path.append((here, way))
        seen.add(way.target)
        here = way.target
        if here == goal:
            break
    return path


def own_leaves(state: State) -> list[Leave]:
    """The leaves written in the state itself, without those that tell of trouble."""
    return [way for way in state.leave if not way.shared and way.guard.kind not in _TROUBLE]


def _reaching(machine: Machine, goal: str) -> set[str]:
    """The states from which the goal can be reached without trouble; a goal that is no end counts as its own."""
    near = {goal}
    while True:
        more = {
            name
            for name, state in machine.states.items()
            if name not in near and any(way.target in near for way in own_leaves(state))
        }
        if not more:
            return near
        near |= more
