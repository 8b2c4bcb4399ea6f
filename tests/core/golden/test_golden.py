"""The search core counts what others have counted: published numbers of distinct states, and closed forms."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elasticfsm.check.explore import explore
from elasticfsm.check.reduce import symmetry
from elasticfsm.check.search import search
from elasticfsm.check.successors import Successors
from elasticfsm.check.world import World, sizes_of
from elasticfsm.compile import Program, compile_protocol, program
from elasticfsm.protocol import load

from . import acp, barriers, commit, shared
from .model import Model

HERE = Path(__file__).parent
COUNTS = json.loads((HERE / "counts.json").read_text())


def named(entry: dict[str, Any]) -> str:
    size = "_".join(map(str, entry["arguments"]))
    return f"{entry['model']}_{size}{'_orbits' if entry.get('alike') else ''}"


@pytest.mark.parametrize("entry", COUNTS["models"], ids=named)
def test_a_model_has_the_published_number_of_distinct_states(entry: dict[str, Any]) -> None:
    module, _, name = entry["model"].partition(".")
    model: Model = getattr(importlib.import_module(f".{module}", __package__), name)(*entry["arguments"])
    reached = model.explore(entry.get("alike", False))
    found = {
        "states": len(reached.states),
        "depth": reached.depth(),
        "deadlocks": len(list(reached.ends())),
        "violates": sorted(acp.violated(model, reached)) if module == "acp" else [],
    }
    expected = {key: entry[key] for key in found if key in entry}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_of_collectives_follow_their_closed_form(rows: int, count: int) -> None:
    model = barriers.collectives(rows, count)
    found = len(model.explore().states), len(model.explore(alike=True).states)
    assert found == barriers.collectives_in_closed_form(rows, count)


def in_our_language(rows: int) -> Program:
    """The protocol `collectives` with that many collectives."""
    whole = compile_protocol(load(HERE / "collectives.yaml"))
    machine = whole.machines["collectives.engine"]
    state = machine.states["meeting"]
    longer = msgspec.structs.replace(state, steps=state.steps * rows)
    changed = msgspec.structs.replace(machine, states={"meeting": longer})
    return msgspec.structs.replace(whole, machines={"collectives.engine": changed})


@pytest.mark.parametrize("count", [1, 2, 4, 6])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_explorer_counts_rows_of_collectives_in_our_language(rows: int, count: int) -> None:
    whole = in_our_language(rows)
    states, orbits = barriers.collectives_in_closed_form(rows, count)
    world = World(whole, sizes_of(whole, str(count)))
    assert len(explore(world, reduced=False).states) == states
    world = World(whole, sizes_of(whole, str(count)))
    canonical = symmetry(world)
    reached = search([canonical(world.initial())], Successors(world).all, lambda move: canonical(move.target))
    assert len(reached.states) == orbits


@pytest.mark.parametrize("entry", COUNTS["shipped"], ids=lambda entry: f"{entry['protocol']}_{entry['sizes']}")
def test_shipped_protocols_have_as_many_states_as_spin_stored(entry: dict[str, Any]) -> None:
    whole = program(entry["protocol"])
    assert len(explore(World(whole, sizes_of(whole, entry["sizes"])), reduced=False).states) == entry["states"]


def test_two_phase_commit_is_consistent_and_may_end_either_way() -> None:
    ends = {frozenset(one for one, _, _ in state.managers) for state in commit.two_phase(3).explore().states}
    assert all(commit.consistent(tuple(stands)) for stands in ends)
    assert {frozenset({commit.COMMITTED}), frozenset({commit.ABORTED})} <= ends


def test_two_processes_are_never_in_the_critical_section_together() -> None:
    reached = shared.peterson().explore()
    assert not any(set(state.at) <= set(shared.CRITICAL) for state in reached.states)


def test_termination_is_detected_only_when_nobody_is_active() -> None:
    reached = shared.ring(3).explore()
    found = [state for state in reached.states if shared.detected(state)]
    assert found and not any(any(state.active) for state in found)


def test_a_path_to_a_deadlock_is_a_shortest_one() -> None:
    reached = shared.philosophers(5).explore()
    assert [len(reached.path(place)) for place in reached.ends()] == [6, 6]


def test_a_search_that_was_cut_short_says_so() -> None:
    model = barriers.barrier(6)
    reached = search(model.initial(), lambda state: list(model.successors(state)), lambda state: state, limit=20)
    assert not reached.complete and len(reached.states) > 20
