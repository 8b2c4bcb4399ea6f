"""Fair runs that never end are found, and those that no fair run takes are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elasticfsm.check.explore import explore
from elasticfsm.check.fair import endless, fairly_ends
from elasticfsm.check.fairness import Edge, fair_component
from elasticfsm.check.verdict import run
from elasticfsm.check.world import CALM, Regime, World, sizes_of
from elasticfsm.cli import app
from elasticfsm.errors import SpecError
from elasticfsm.language import State

from .conftest import SWITCH, broken
from .differential import BUSY, composed

PAUSE = Path(__file__).parent / "pause.yaml"
Graph = dict[int, list[Edge]]

ROUND = [Edge(1, "step"), Edge(0, "step")]


def stays(graph: Graph, *goals: int) -> set[int] | None:
    return fair_component(list(graph), graph.__getitem__, goals)


def test_a_way_out_that_is_always_open_is_taken_some_day() -> None:
    assert stays({0: [Edge(0, "step"), Edge(1, "out")], 1: []}, 1) is None


def test_a_way_out_that_nobody_owes_may_never_be_taken() -> None:
    assert stays({0: [Edge(0, "step"), Edge(1)], 1: []}, 1) == {0}


def test_a_class_that_moves_elsewhere_has_done_what_it_owes() -> None:
    """Fairness by process would not tell that its way out is never taken."""
    assert stays({0: [Edge(0, "engine"), Edge(1, "engine")], 1: []}, 1) == {0}


def test_a_way_out_that_is_open_now_and_then_is_owed_by_strong_fairness_only() -> None:
    weak = {0: [ROUND[0], Edge(2, "out")], 1: [ROUND[1]], 2: []}
    strong = {0: [ROUND[0], Edge(2, "out", strong=True)], 1: [ROUND[1]], 2: []}
    assert stays(weak, 2) == {0, 1}
    assert stays(strong, 2) is None


def test_what_is_left_of_a_component_without_states_of_a_strong_class_is_looked_at_again() -> None:
    """Round 0 and 1 the way out is owed; 1 alone goes round, too, and does not enable it."""
    graph = {0: [ROUND[0], Edge(2, "out", strong=True)], 1: [Edge(0), Edge(1, "step")], 2: []}
    assert stays(graph, 2) == {1}


def test_goals_are_taken_out_before_components_are_formed() -> None:
    """The goal lies on a cycle of the same component: a fair run may go round without it all the same."""
    graph = {0: [ROUND[0], Edge(2)], 1: [ROUND[1]], 2: [Edge(0, "again")]}
    assert stays(graph, 2) == {0, 1}


def test_a_run_may_stop_where_nothing_is_owed() -> None:
    assert stays({0: [Edge(1)], 1: []}, 1) == {0}
    assert stays({0: [Edge(1, "step")], 1: []}, 1) is None


def test_the_forward_steps_of_a_protocol_that_ends_are_no_reason_to_think_that_it_does_not(grow: Any) -> None:
    for regime in (CALM, Regime(cancel=True)):
        assert fairly_ends(grow(), {"existing": 1, "new": 1}, regime) is None


DEEP = bool(os.environ.get("ELASTICFSM_DEEP"))
FAULTS = ({"crashes": 1}, {"losses": 1}, {"duplicates": 1}, {"crashes": 1, "restart": True})


@pytest.mark.parametrize("fault", FAULTS if DEEP else FAULTS[1:2])
def test_the_switch_ends_with_faults_if_deadlines_fire_some_day(fault: dict[str, Any]) -> None:
    whole = broken(SWITCH)
    assert fairly_ends(whole, sizes_of(whole, "1+1"), Regime(expiry="eventual", **fault)) is None


@pytest.mark.skipif(not DEEP, reason="make check-deep")
@pytest.mark.parametrize("fault", [{}, {"crashes": 1}, {"losses": 1}], ids=str)
def test_growth_over_simpler_experts_ends_with_faults_if_deadlines_fire_some_day(fault: dict[str, Any]) -> None:
    whole = composed("scale_up", over=BUSY)
    assert fairly_ends(whole, sizes_of(whole, "1+1"), Regime(expiry="eventual", **fault)) is None


def test_a_deadline_that_comes_too_early_each_time_is_found_where_it_may() -> None:
    """An undoing of two steps is begun again by its deadline; in the end a deadline is long enough, if `eventual`."""
    whole = broken(SWITCH, {"at": "existing.undoing", "add": {"groups.destroy": "standby"}})
    assert fairly_ends(whole, sizes_of(whole, "1+1"), Regime(expiry="eventual")) is None
    assert fairly_ends(whole, sizes_of(whole, "1+1"), Regime(expiry="arbitrary")) is not None


def test_after_a_death_nothing_ends_if_deadlines_need_not_fire() -> None:
    whole = broken(SWITCH)
    found = fairly_ends(whole, sizes_of(whole, "1+1"), Regime(expiry="arbitrary", crashes=1))
    assert found is not None
    assert "coordinator: dead" in "\n".join(found.lines)


@pytest.mark.parametrize("sizes", ["1", "2"])
def test_a_task_that_may_fail_again_and_again_breaks_nothing_but_termination(sizes: str) -> None:
    """Must-fail control: each time it may as well succeed, so an end stays in reach; nothing makes it."""
    again = State(background=["placement.check"], leave={"answer fits": "done", "answer impossible": "working"})
    whole = broken(PAUSE, {"at": "engine.at_work", "states": {"working": again}})
    assert not run(whole, sizes_of(whole, sizes), CALM).refuted
    found = fairly_ends(whole, sizes_of(whole, sizes), CALM)
    assert found is not None
    assert "may go on for ever" in found.note and "placement.check = impossible" in found.note


def test_reductions_are_refused() -> None:
    whole = broken(PAUSE)
    graph = explore(World(whole, {"engine": 1}), reduced=True)
    with pytest.raises(SpecError, match="reduced graph"):
        endless(graph)
    refused = CliRunner().invoke(app, ["check", str(PAUSE), "--fair"])
    assert "add --unreduced" in str(refused.exception)


def test_the_command_says_that_every_fair_run_ends() -> None:
    said = CliRunner().invoke(app, ["check", str(PAUSE), "--fair", "--unreduced", "--sizes", "2"])
    assert said.exit_code == 0, said.output
    assert "terminates" in said.output
