"""Every reduction against the unreduced run: the same properties refuted, the same ends reached."""

from __future__ import annotations

from typing import Any

import pytest

from elasticfsm.check.explore import Graph, explore
from elasticfsm.check.liveness import stranded, uncommitted
from elasticfsm.check.world import Regime, World, sizes_of
from elasticfsm.compile import Program, program
from elasticfsm.patch import load_patch, patched, shipped_patches


def found(compiled: Program, sizes: str, regime: Regime, **how: Any) -> tuple[set[str], set[Any]]:
    """The refuted properties, and the ends as (coordinator, engines by role) without what reductions forget."""
    graph = explore(World(compiled, sizes_of(compiled, sizes), regime), **how)
    refuted = set(graph.refuted)
    if compiled.coordinator:
        refuted |= {"good_end"} if stranded(graph) else set()
        refuted |= {"commits"} if regime == Regime() and uncommitted(graph) is not None else set()
    return refuted, {_end(graph, place) for place in graph.ends}


def _end(graph: Graph, place: int) -> Any:
    world, state = graph.world, graph.states[place]
    engines = []
    for number in state[1:-1]:
        local = world.locals[number]
        stands = [world.state_of(local, machine) for machine in range(len(local.stands))]
        engines.append((local.role, local.switched, stands[0].name if stands[0] else ""))
    return state and world.end_of_boss(state[0]), tuple(sorted(engines))


def same(compiled: Program, sizes: str, regime: Regime) -> None:
    reduced, unreduced = (found(compiled, sizes, regime, reduced=how) for how in (True, False))
    assert reduced == unreduced


@pytest.mark.parametrize("cancel", [False, True])
def test_mistakes_are_found_alike_with_and_without_reductions(
    mistake: str, mistakes: Any, grow: Any, cancel: bool
) -> None:
    edits, how = mistakes[mistake]
    if "of" in how:
        pytest.skip("a shipped protocol: compared below")
    same(grow(*edits), "1+1", Regime(cancel=cancel))


@pytest.mark.slow
def test_mistakes_are_found_alike_with_two_engines(mistake: str, mistakes: Any, grow: Any) -> None:
    edits, how = mistakes[mistake]
    if "of" in how:
        pytest.skip("a shipped protocol: compared below")
    same(grow(*edits), "2+1", Regime())


@pytest.mark.parametrize("cancel", [False, True])
def test_the_small_protocol_has_the_same_ends_with_and_without_reductions(grow: Any, cancel: bool) -> None:
    same(grow(), "1+1", Regime(cancel=cancel))
    if not cancel:
        same(grow(), "2+1", Regime())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["serving", "rebalance", "scale_up", "scale_down"])
def test_shipped_protocols_have_the_same_ends_with_and_without_reductions(name: str) -> None:
    compiled = program(name)
    same(compiled, "+".join("1" for _ in compiled.roles) if compiled.coordinator else "2", Regime())


@pytest.mark.slow
@pytest.mark.parametrize("path", shipped_patches(), ids=lambda path: path.stem)
def test_faulty_protocols_are_refuted_alike_with_and_without_reductions(path: Any) -> None:
    same(patched(*load_patch(path)), "1+1", Regime())
