"""Both explorers on the same world: everything that either says must be what the other says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from elasticfsm.check import explore as plain
from elasticfsm.check.coverage import fired
from elasticfsm.check.explore import Graph
from elasticfsm.check.liveness import blocked, stranded, uncommitted
from elasticfsm.check.vector import explore as vector
from elasticfsm.check.world import CALM, Regime, World, sizes_of
from elasticfsm.compile import Program

DEEP = bool(os.environ.get("ELASTICFSM_DEEP"))  # `make check-deep`: larger sizes, no limits
Agree = Callable[..., Graph]


def depths(graph: Graph) -> list[int]:
    """How far each state is from the first one."""
    found: list[int] = []
    for place in range(len(graph.states)):
        parent = graph.parents[place]
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def end(graph: Graph, place: int) -> Any:
    """A terminal state in words that do not depend on numbers."""
    world, state = graph.world, graph.states[place]
    engines = []
    for number in state[1:-1]:
        local = world.locals[number]
        stands = [world.state_of(local, machine) for machine in range(len(local.stands))]
        engines.append((local.role, local.dead, local.switched, tuple(one.name if one else "" for one in stands)))
    return world.end_of_boss(state[0]), tuple(sorted(engines))


def said(graph: Graph) -> dict[str, Any]:
    """All that a complete graph says."""
    depth = depths(graph)
    told: dict[str, Any] = {
        "states": len(graph.states),
        "transitions": graph.transitions,
        "levels": Counter(depth),
        "refuted": {name: depth[place] for name, (place, _) in graph.refuted.items()},
        "ends": Counter(end(graph, place) for place in graph.ends),
        "good": len(graph.good),
        "ways": fired(graph),
    }
    if graph.world.operation:
        lost, wrong = stranded(graph), uncommitted(graph)
        told["stranded"] = lost and (depth[lost[0]], lost[1])
        told["uncommitted"] = wrong is not None
        told["blocked"] = blocked(graph) is not None if graph.service is not None else None
    return told


@pytest.fixture
def agree() -> Agree:
    """Explores with both and compares: all that they say, or up to `limit` states how many there are at each depth."""

    def compare(
        program: Program, sizes: str, regime: Regime = CALM, reduced: bool = True, limit: int | None = None
    ) -> Graph:
        graphs = [
            one.explore(World(program, sizes_of(program, sizes), regime), reduced, None if DEEP else limit)
            for one in (plain, vector)
        ]
        assert graphs[0].complete == graphs[1].complete
        if graphs[0].complete:
            assert said(graphs[0]) == said(graphs[1])
        else:
            whole = min(max(depths(graph)) for graph in graphs)  # the last level may be cut
            levels = [Counter(depth for depth in depths(graph) if depth < whole) for graph in graphs]
            assert levels[0] == levels[1]
        return graphs[1]

    return compare
