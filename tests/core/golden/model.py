"""What a golden model is: where it begins, where it may go, and optionally which states are alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from elasticfsm.check.search import Reached, search

State = tuple[Hashable, ...]


@dataclass
class Model:
    """A transition system. `progress` are the moves that fairness promises; without it, all of them."""

    initial: Callable[[], Iterable[Any]]
    successors: Callable[[Any], Iterable[Any]]
    canonical: Callable[[Any], Any] | None = None
    progress: Callable[[Any], Iterable[Any]] | None = None

    def explore(self, alike: bool = False) -> Reached[Any]:
        """Every reachable state; with `alike` only one of those that the canonical form maps to each other."""
        same = self.canonical if alike and self.canonical else lambda state: state
        return search(map(same, self.initial()), lambda state: list(self.successors(state)), same)


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """A tuple with one element replaced."""
    return (*values[:place], value, *values[place + 1 :])


def transitions(reached: Reached[Any]) -> Iterable[tuple[Any, Any]]:
    """Every pair of a state and one that follows it."""
    for place, state in enumerate(reached.states):
        for target in reached.targets[reached.offsets[place] : reached.offsets[place + 1]]:
            yield state, reached.states[target]
