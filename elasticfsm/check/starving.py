"""Whether forward steps go on: a fair run in which none is completed any more costs the service."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from elasticfsm.check.explore import Graph
from elasticfsm.check.fair import in_full, owed
from elasticfsm.check.fairness import Edge, fair_component
from elasticfsm.check.move import AGREED, ENVIRONMENT, FAULT
from elasticfsm.check.trace import trace_to
from elasticfsm.check.verdict import Refutation
from elasticfsm.check.world import Regime
from elasticfsm.compile import Program
from elasticfsm.errors import SpecError


def steps_go_on(program: Program, sizes: dict[str, int], regime: Regime, limit: int | None = None) -> Refutation | None:
    """Explores in full a world that never idles; a fair run without a forward step refutes `service_kept`.

    A machine that asks again as long as it is told no, between two forward steps, is such a run: nobody owes it another
    answer. None if there is none. Raises `SpecError` if there are more than `limit` states.
    """
    return starved(in_full(program, sizes, regime, limit))


def starved(graph: Graph) -> Refutation | None:
    """A fair run of this graph in which no forward step is completed any more; None if there is none."""
    if graph.reduced:
        raise SpecError("fair runs are not looked for in a reduced graph: it lacks some; explore without reductions")
    index = {state: place for place, state in enumerate(graph.states)}
    stepped: set[int] = set()

    @cache
    def edges(place: int) -> Sequence[Edge]:
        found = graph.successors.all(graph.states[place])
        stepped.update(index[one.target] for one in found if one.tag & AGREED)
        return [Edge(index[one.target], *owed(one, ENVIRONMENT | FAULT)) for one in found]

    for place in range(len(graph.states)):
        edges(place)
    component = fair_component(range(len(graph.states)), edges, stepped)
    if component is None:
        return None
    first = min(component)
    trace = trace_to(graph, "service_kept", first)
    note = "from here a fair run may go on for ever without a forward step"
    return Refutation("service_kept", [*trace.lines(graph.world), f"   {note}"], len(trace.steps), note, trace)
