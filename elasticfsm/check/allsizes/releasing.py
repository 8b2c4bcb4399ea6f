"""Release of a collective in a view: all members are in, so both of the view are, and any others agree to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from elasticfsm.check.allsizes.places import Place
from elasticfsm.check.allsizes.views import Company, Views
from elasticfsm.check.collectives import Outcome, outcomes
from elasticfsm.check.collectives import Place as Group
from elasticfsm.check.moves import wants
from elasticfsm.check.tables import StepTable
from elasticfsm.check.world import Result, World


def release(views: Views, company: Company) -> None:
    """Adds what a view becomes when an instance that one of its engines has entered is released."""
    places, seen = views.places, set()
    for place in company.pair:
        for group, name in place.groups:
            if group in seen:
                continue
            seen.add(group)
            if company.every(partial(places.inside, group=group, step=name)):
                _released(views, company, group, name)


def held_up(views: Views, company: Company) -> bool:
    """Whether each instance that is open in a view may be waiting for somebody: else it was released at once."""
    places = views.places
    for place in company.pair:
        for group, name in place.groups:
            if not company.some(partial(places.outside, group=group, step=name)):
                return False
    return True


def _released(views: Views, company: Company, group: Group, name: str) -> None:
    places, world = views.places, views.world
    step = next(step for step in world.tables.steps() if step.name == name)
    members = [place for place in company.pair if place.role in places.members[group[0]]]
    others = [
        third
        for third in company.thirds
        if third.role in places.members[group[0]] and places.inside(third, group, name)
    ]
    boss = company.view[0]
    for outcome in _outcomes(world, step, members, others):
        one, other = (_after(views, place, group, outcome) for place in company.pair)
        said = world.results[outcome.result - 2].answer
        views.add(boss, one, other, company.view, f"all are in {step.text}{' = ' + said if said else ''}")


def _after(views: Views, place: Place, group: Group, outcome: Outcome) -> int:
    places, change = views.places, views.successors.change
    if place.role not in places.members[group[0]]:
        return place.number
    tables = views.world.tables

    def released(state: int) -> int:
        state = change("release", state, group, outcome.result)
        return change("quiet", state) if outcome.void and tables.wake_mail else state

    kept = ~sum(1 << wake for wake in tables.wakes) if outcome.void else -1
    return places.changed(place.number, ("release", group, outcome), released, kept)


def _outcomes(world: World, step: StepTable, members: Sequence[Place], others: Sequence[Place]) -> list[Outcome]:
    """What the release may answer: `members` take part for sure, any of `others` may."""
    if step.means == "agree":
        return list(_agreements(world, step, members, others))
    if step.asks:
        return list(_asked(world, step, members, others))
    return outcomes(world, step, [place.local for place in members])


def _agreements(world: World, step: StepTable, members: Sequence[Place], others: Sequence[Place]) -> Iterator[Outcome]:
    """Full are the votes of both, less those that some other member may not cast; `empty` if nobody wants a vote."""
    contributed = [wants(world, place.local) for place in members]
    full = contributed[0]
    for votes in contributed:
        full &= votes
    possible, less = {full}, {wants(world, place.local) for place in others}
    while more := {votes & other for votes in possible for other in less} - possible:
        possible |= more
    work, empty = step.answers
    for votes in sorted(possible):
        yield Outcome(world.result(Result(work, votes)), 0, work in world.tables.wave_ends)
    if not any(contributed):
        yield Outcome(world.result(Result(empty, 0)), 0, empty in world.tables.wave_ends)


def _asked(world: World, step: StepTable, members: Sequence[Place], others: Sequence[Place]) -> Iterator[Outcome]:
    def has(place: Place) -> bool:
        return place.local.facts & step.asks == step.asks

    if all(map(has, members)):
        yield Outcome(world.result(Result(step.answers[0], 0)), 0, False)
    if not all(map(has, members)) or not all(map(has, others)):
        yield Outcome(world.result(Result(step.answers[1], 0)), 0, False)
