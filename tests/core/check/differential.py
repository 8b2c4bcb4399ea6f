"""What a run found, apart from how: the refuted properties, and how everybody stands at every end."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticfsm.check.explore import Graph, explore
from elasticfsm.check.liveness import stranded, uncommitted
from elasticfsm.check.vector.explore import explore as by_levels
from elasticfsm.check.vector.levels import Levels
from elasticfsm.check.world import Regime, World, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.language import Edit
from elasticfsm.parsing import parse
from elasticfsm.patch import edited
from elasticfsm.protocol import find, load, resolve
from elasticfsm.reading import read

CALM, CANCEL = Regime(), Regime(cancel=True)
STILL = ("abstract/still",)  # experts never move by themselves
BUSY = ("abstract/still", "abstract/busy")  # ... and there is no idle moment
EARLIEST = ("kb04", "kb05", "kb06", "kb39")  # of the faulty protocols those that are always compared
Found = tuple[set[str], set[Any]]


def same(
    compiled: Program, sizes: str, regime: Regime, less: dict[str, Any] | None = None, large: bool = False
) -> None:
    """With all reductions and with `less` of them (none, if not told) the same is found, in many or in few states."""
    everything, plain = (found(compiled, sizes, regime, large, **how) for how in ({}, less or {"reduced": False}))
    assert everything == plain


def found(compiled: Program, sizes: str, regime: Regime, large: bool, **how: Any) -> Found:
    """The refuted properties, and the ends as (coordinator, engines by role) without what reductions forget."""
    search = by_levels if large else explore
    graph = search(World(compiled, sizes_of(compiled, sizes), regime), **how)
    refuted = set(graph.refuted)
    if compiled.coordinator:
        refuted |= {"good_end"} if stranded(graph) else set()
        refuted |= {"commits"} if regime == CALM and uncommitted(graph) is not None else set()
    return refuted, {_end(graph.world, end) for end in _ends(graph)}


def _ends(graph: Graph) -> set[tuple[int, ...]]:
    """Coordinator and engines at every end."""
    if not isinstance(graph, Levels):
        return {graph.states[place][: graph.world.count + 1] for place in graph.ends}
    places = np.fromiter(graph.ends, np.intp, len(graph.ends))
    columns = [np.concatenate(list(graph.found.column(place)))[places] for place in range(graph.world.count + 1)]
    return {tuple(row) for row in np.unique(np.stack(columns), axis=1).T.tolist()}


def _end(world: World, state: tuple[int, ...]) -> Any:
    engines = []
    for number in state[1:]:
        local = world.locals[number]
        stand = world.state_of(local, 0)
        engines.append((local.role, local.switched and not local.dead, stand.name if stand and stand.end else ""))
    return world.end_of_boss(state[0]), tuple(sorted(engines))


def composed(of: Any, *edits: dict[str, Any], over: tuple[str, ...] = ()) -> Program:
    """A protocol after some edits, over others than the shipped ones."""
    source = read(find(of))
    file = parse(source)
    edited(file, [Edit(**edit) for edit in edits], source, ("edits",))
    return compile_protocol(resolve(file, source), {part.name: part for part in map(load, over)})
