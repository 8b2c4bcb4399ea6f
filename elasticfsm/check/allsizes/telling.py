"""Places, views and the ways to them, in words."""

from __future__ import annotations

from elasticfsm.check.allsizes.places import Place
from elasticfsm.check.allsizes.views import Finding, View, Views
from elasticfsm.check.world import ENTERED, ended


def tell_way(views: Views, finding: Finding) -> list[str]:
    """What leads to a view that refutes a property: one line a step, what two engines show of it."""
    told = [text for _, text in views.way(finding.view) if text]
    last = [finding.text] if finding.text else []
    return [*told, *last, f"=> {finding.property}", *_stands(views, finding.view)]


def tell_stuck(views: Views, boss: int, places: tuple[Place, ...]) -> list[str]:
    """Where everybody stands in a set of places in which nobody can move."""
    where = [f"   engines of {place.role}: {tell_place(views, place)}" for place in places]
    return ["=> no_deadlock: if engines stand so together, nobody can move", *_coordinator(views, boss), *where]


def tell_place(views: Views, place: Place) -> str:
    """The states of an engine's machines, and the step in which each is."""
    world, told = views.world, []
    for table, stand in zip(world.machines[place.local.role], place.local.stands, strict=True):
        if stand is None:
            continue
        state = table.states[stand.state]
        text = f"{table.name}:{state.name}"
        if not ended(state, stand):
            step = state.steps[stand.step].text
            text += f" in {step}" if stand.inside == ENTERED else f" before {step}"
        told.append(text)
    return ", ".join(told) or "nothing has started"


def _stands(views: Views, view: View) -> list[str]:
    boss, *places = view
    lines = [f"   {views.places[number].role}: {tell_place(views, views.places[number])}" for number in places]
    return [*_coordinator(views, boss), *lines]


def _coordinator(views: Views, boss: int) -> list[str]:
    stand, table = views.world.bosses[boss].stand, views.world.tables.coordinator
    return [f"   coordinator: {table.states[stand.state].name}"] if stand and table else []
