"""What an explorer reached at one size, as the views that it shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from elasticfsm.check.allsizes.views import Views
from elasticfsm.check.explore import explore
from elasticfsm.check.world import Regime, World, sizes_of
from elasticfsm.compile import Program


def shown(views: Views) -> set[Any]:
    """All views, by value: the numbers of states differ from world to world."""
    bosses, met = views.world.bosses, views.places.met
    return {
        (bosses[boss], frozenset({_value(met[one]), _value(met[other])}), one == other)
        for boss, one, other in views.found.parents
    }


def _value(place: Any) -> Any:
    return place.local, place.mail


def missed(
    views: Views, program: Program, sizes: str, regime: Regime, reduced: bool, limit: int | None = None
) -> tuple[int, list[Any]]:
    """How many states an explorer reached at this size, and the views of them that are not among all views.

    Of a reduced run only states in which no move is explored alone are looked at: both choose such moves in another
    order.
    """
    world = World(program, sizes_of(program, sizes), regime)
    world.results, world.answers = views.world.results, views.world.answers  # numbered alike
    graph = explore(world, reduced, limit)
    known, lost = shown(views), []
    for state in graph.states:
        if reduced and graph.successors.alone(state) is not None:
            continue
        lost += [view for view in _views(world, state) if view not in known]
    return len(graph.states), lost


def _views(world: World, state: tuple[int, ...]) -> Iterator[Any]:
    boss = world.bosses[state[0]]
    places = [(world.locals[number], _mail(world, state[-1], who)) for who, number in enumerate(state[1:-1])]
    for one, other in combinations(places, 2):
        yield boss, frozenset({one, other}), one == other


def _mail(world: World, mail: int, receiver: int) -> int:
    """The messages of peers to one engine, whoever sent them."""
    count, found = world.count, 0
    for message in range(len(world.tables.mail.peers)):
        lane = mail >> (message * count + receiver) * count & (1 << count) - 1
        found |= 1 << message if lane else 0
    return found
