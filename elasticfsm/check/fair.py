"""Whether every fair run of an operation ends: one weak fairness per thread, a strong one per guard and message.

A thread goes on with its list: weak fairness, for once it may it keeps the right to. A guard is looked at between two
forward steps only, so inside of one it is not enabled, and weak fairness would let an engine step for ever and never
read what it was sent: a guard that is true at boundary after boundary is taken some day. (The interpreter looks at all
of them at each boundary.) Deadlines are owed only where they are `eventual`: from some moment on they are long enough
for what a machine can do by itself, and fire where it waits for others. `arbitrary` ones fire at any moment, or never.
Nothing is fair about the operator, requests, faults, and what a step answers.

A component is judged by what can be taken in it, so nothing may have been left out of the graph, and reductions are
refused. Moves explored alone drop cycles, and symmetry lets the engines of a role take turns at what one never gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.explore import Graph, explore
from elasticfsm.check.fairness import Edge, fair_component
from elasticfsm.check.move import ENVIRONMENT, EXPIRED, FAULT
from elasticfsm.check.trace import trace_to
from elasticfsm.check.transition import Transition
from elasticfsm.check.verdict import Refutation
from elasticfsm.check.world import ABORTED, ABSENT, DONE, Regime, State, World
from elasticfsm.compile import Program
from elasticfsm.errors import SpecError

TOLD = 12  # moves that are named of a run that goes round


def fairly_ends(program: Program, sizes: dict[str, int], regime: Regime, limit: int | None = None) -> Refutation | None:
    """Explores an operation in full; a fair run that never ends refutes `terminates`, None if there is none.

    Raises `SpecError` if there are more than `limit` states, or if the protocol has no coordinator: nothing ends then.
    """
    if not program.coordinator:
        raise SpecError(f"{program.name} has no coordinator: it runs for ever, so there is no end to look for")
    return endless(in_full(program, sizes, regime, limit))


def in_full(program: Program, sizes: dict[str, int], regime: Regime, limit: int | None) -> Graph:
    """The graph of all states, none left out; raises `SpecError` if there are more than `limit`."""
    graph = explore(World(program, sizes, regime), False, limit)
    if not graph.complete:
        raise SpecError(f"{program.name}: more than {limit:,} states; fairness needs all of them: take a smaller size")
    return graph


def endless(graph: Graph) -> Refutation | None:
    """A fair run of this graph that never ends, as a refutation of `terminates`; None if there is none."""
    if graph.reduced:
        raise SpecError("fair runs are not looked for in a reduced graph: it lacks some; explore without reductions")
    ends = [place for place, how in graph.ends.items() if how in (DONE, ABORTED, ABORTED | ABSENT)]
    goals = graph.good if graph.service is not None else ends
    unfair = ENVIRONMENT | FAULT | (0 if graph.world.regime.expiry == "eventual" else EXPIRED)
    index = {state: place for place, state in enumerate(graph.states)}

    @cache
    def edges(place: int) -> Sequence[Edge]:
        found: Sequence[Transition] = graph.successors.all(graph.states[place])
        if graph.world.regime.expiry == "eventual":
            found = patient(found)
        return [Edge(index[one.target], *owed(one, unfair)) for one in found]

    component = fair_component(range(len(graph.states)), edges, goals)
    if component is None:
        return None
    first = min(component)
    trace = trace_to(graph, "terminates", first)
    note = _note(graph, component, index)
    return Refutation("terminates", [*trace.lines(graph.world), f"   {note}"], len(trace.steps), note, trace)


def patient(steps: Sequence[Transition]) -> list[Transition]:
    """The steps without deadlines of machines that can go on by themselves."""
    busy = {_mover(step) for step in steps if not step.tag & (ENVIRONMENT | FAULT | EXPIRED)}
    return [step for step in steps if not step.tag & EXPIRED or _mover(step) not in busy]


def _mover(step: Transition) -> tuple[int, int]:
    """Who moves: an engine and its machine, or the coordinator."""
    return step.who, -1 if isinstance(step.move, BossMove) else step.move.machine


def owed(step: Transition, unfair: int) -> tuple[object, bool]:
    """The class of fairness of a step, and whether it is strong; None for what nobody owes us."""
    move = step.move
    if step.tag & unfair:
        return None, False
    if isinstance(move, BossMove):
        return ("coordinator", move.edges), bool(move.edges)
    if move.verb == "guard":
        return (step.who, move.machine, move.edges or move.text), True
    return (step.who, move.machine), False


def _note(graph: Graph, component: set[int], index: dict[State, int]) -> str:
    """What goes on for ever in a component."""
    told: dict[str, None] = {}
    for place in sorted(component):
        for step in graph.successors.all(graph.states[place]):
            who = "coordinator" if step.who < 0 else graph.world.names[step.who]
            if index[step.target] in component:
                told[f"{who}: {step.move.text}"] = None
        if len(told) > TOLD:
            break
    if not told:
        return "from here nothing need move any more"
    return f"from here a fair run may go on for ever without an end, with {'; '.join(list(told)[:TOLD])}"
