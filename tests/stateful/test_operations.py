"""The real machines of all roles hold their properties under arbitrary interleavings, and a broken guard is noticed."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from elasticfsm.compile import Program, program
from elasticfsm.protocol import Guard, Leave, Step
from elasticfsm.testing import Violated, World
from elasticfsm.testing.world import Action


def _harness() -> Any:
    spec = importlib.util.spec_from_file_location("stateful_harness", Path(__file__).with_name("harness.py"))
    if spec is None or spec.loader is None:
        raise ImportError("harness.py is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_HARNESS = _harness()
Operation, sensible = _HARNESS.Operation, _HARNESS.sensible

UP = [{"existing": 1, "new": 1}, {"existing": 2, "new": 1}, {"existing": 1, "new": 2}, {"existing": 2, "new": 2}]
DOWN = [{"remaining": 1, "removing": 1}, {"remaining": 2, "removing": 1}, {"remaining": 1, "removing": 2}]


def explore(table: Program, sizes: list[dict[str, int]], examples: int, steps: int = 12) -> None:
    """Runs that many examples; the same ones every time."""
    kind = type("Explored", (Operation,), {"program": table, "sizes": tuple(sizes)})
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            print_blob=True,
            phases=[Phase.generate],  # a failing example is printed as it is: shrinking takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_growing_holds_its_properties_in_any_order() -> None:
    explore(program("scale_up"), UP, 120)


@pytest.mark.slow
def test_shrinking_holds_its_properties_in_any_order() -> None:
    explore(program("scale_down"), DOWN, 120)


def edited(table: Program, machine: str, state: str, edit: Callable[[Any], Any]) -> Program:
    """The same protocol with one state of one machine changed."""
    spec = table.machines[machine]
    states = {**spec.states, state: edit(spec.states[state])}
    machines = {**table.machines, machine: msgspec.structs.replace(spec, states=states)}
    return msgspec.structs.replace(table, machines=machines)


def leaves(*ways: tuple[Guard, str]) -> Callable[[Any], Any]:
    return lambda state: msgspec.structs.replace(state, leave=(*(Leave(*way) for way in ways), *state.leave))


def steps(*names: Step) -> Callable[[Any], Any]:
    return lambda state: msgspec.structs.replace(state, steps=names)


JOIN, SHARE = Step("groups.join", "standby"), Step("placement.share", "standby")

BROKEN: dict[str, tuple[str, str, str, Callable[[Any], Any], set[str]]] = {
    "an existing engine joins when it is told to, without a vote": (
        "scale_up",
        "scale_up.existing",
        "stilling",
        leaves((Guard("received", "drained"), "joining")),
        {"no_deadlock", "collective_order"},
    ),
    "an existing engine votes without having drained the rebalance": (
        "scale_up",
        "scale_up.existing",
        "prepared",
        leaves((Guard("received", "vote"), "voting")),
        {"no_transfer_at_switch"},
    ),
    "an existing engine joins before it shares the placement": (
        "scale_up",
        "scale_up.existing",
        "joining",
        steps(JOIN, SHARE),
        {"placement", "collective_order", "no_deadlock"},
    ),
    "a removing engine goes on stepping when it parts": (
        "scale_down",
        "scale_down.removing",
        "voting",
        leaves((Guard("agreed", "switch"), "leaving")),
        {"no_deadlock", "good_end", "contracts"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_guard_broken_on_purpose_is_noticed(name: str) -> None:
    protocol, machine, state, edit, properties = BROKEN[name]
    with pytest.raises(Violated) as error:
        explore(edited(program(protocol), machine, state, edit), UP[1:2] if protocol == "scale_up" else DOWN[1:2], 100)
    assert error.value.name in properties


@pytest.mark.slow
def test_a_withdrawn_evacuation_that_leaves_its_drain_behind_is_noticed() -> None:
    edit = leaves((Guard("received", "spread"), "restarting"))
    table = edited(program("scale_down"), "rebalance.main", "gathering", edit)
    with pytest.raises(Violated, match="good_end") as error:
        for seed in range(100):
            cancel_somewhere(table, DOWN[1], seed)
    assert "rebalance.main stopped" in str(error.value)


@pytest.mark.slow
def test_a_cancel_at_any_micro_step_leaves_everybody_serving() -> None:
    for seed in range(20):
        cancel_somewhere(program("scale_up"), UP[1], seed)
        cancel_somewhere(program("scale_down"), DOWN[1], seed)


def cancel_somewhere(table: Program, counts: dict[str, int], seed: int) -> None:
    """One run to its end in the order of a seed, with one cancel among its first micro-steps."""
    chance = random.Random(seed)
    print(f"{table.name} {counts}, seed {seed}")
    world = World(table, counts, lambda options: sensible(options, chance))
    moment = chance.randrange(600)

    def pick(actions: list[Action]) -> Action:
        if len(world.trace) == moment:
            world.cancel()
        return chance.choice(actions)

    world.drive(pick)
