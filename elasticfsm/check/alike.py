"""States of a machine that behave alike once they were entered: one of them stands for all.

Two waiting states with the same guards that lead to states that are alike (and send the same) differ in nothing to
come. What they sent when they were entered is in flight and no longer part of them. Found by partition refinement.
"""

from __future__ import annotations

from elasticfsm.check.tables import MachineTable, StateTable


def alike(machine: MachineTable) -> list[int]:
    """For each state the first one that behaves like it; a state with steps or an end stands for itself only."""
    states = machine.states
    classes = _number([_looks(index, state) for index, state in enumerate(states)])
    while True:
        refined = _number([(classes[index], _leads(state, states, classes)) for index, state in enumerate(states)])
        if len(set(refined)) == len(set(classes)):
            return [refined.index(number) for number in refined]
        classes = refined


def _looks(index: int, state: StateTable) -> object:
    alone = index if state.steps or state.end else -1
    guards = frozenset((way.kind, way.name) for way in state.leave)
    return (alone, state.thread, state.serves, state.rests, state.votes, guards)


def _leads(state: StateTable, states: tuple[StateTable, ...], classes: list[int]) -> object:
    found = []
    for way in state.leave:
        target = states[way.target]
        found.append(
            (way.kind, way.name, classes[way.target], target.inbox, target.outbox, target.peers, target.orders)
        )
    return frozenset(found)


def _number(keys: list[object]) -> list[int]:
    seen: dict[object, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]
