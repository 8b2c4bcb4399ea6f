"""A fair run in which no forward step is completed any more is found, and by nothing else."""

from __future__ import annotations

import pytest

from elasticfsm import language
from elasticfsm.check.explore import explore
from elasticfsm.check.starving import starved, steps_go_on
from elasticfsm.check.verdict import run
from elasticfsm.check.world import CALM, World, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.patch import edited
from elasticfsm.protocol import find, load, parse, resolve
from elasticfsm.reading import read

AGAIN = {
    "at": "main.planning",
    "leave": {"answer nothing": "planning"},
}  # asks again as long as there is nothing to move


def pausing(*edits: dict[str, object]) -> Program:
    """Rebalance, after some edits, inside an operation that stills the experts twice."""
    source = read(find("rebalance"))
    file = parse(source)
    edited(file, [language.Edit(**edit) for edit in edits], source, ())  # type: ignore[arg-type]
    below = {"rebalance": resolve(file, source), "serving": load("abstract/busy")}
    return compile_protocol(load("abstract/pausing"), below)


def test_a_machine_that_asks_again_for_ever_keeps_the_engine_from_stepping() -> None:
    program = pausing(AGAIN)
    sizes = sizes_of(program, "1")
    found = steps_go_on(program, sizes, CALM)
    assert found is not None
    assert found.property == "service_kept"
    assert "rebalance planning" in found.lines[-2]
    assert not run(program, sizes, CALM).refuted


def test_the_protocol_as_it_is_always_steps_again() -> None:
    program = pausing()
    assert steps_go_on(program, sizes_of(program, "1"), CALM) is None


def test_reductions_and_too_many_states_are_refused() -> None:
    program = pausing()
    sizes = sizes_of(program, "1")
    with pytest.raises(SpecError, match="reduced graph"):
        starved(explore(World(program, sizes)))
    with pytest.raises(SpecError, match="more than 5 states"):
        steps_go_on(program, sizes, CALM, 5)
