"""State counts: of the shipped protocols, as committed, and of collectives in a row, as computed by hand."""

from __future__ import annotations

import json
import os
from math import comb
from pathlib import Path

import pytest

from elasticfsm.check.explore import explore
from elasticfsm.check.world import World, sizes_of
from elasticfsm.compile import compile_protocol, program
from elasticfsm.protocol import load, shipped

GOLDEN = Path(__file__).parent / "golden.json"
ROW = """
protocol: row
kinds: {{eplb: host}}
groups: {{active: [engine]}}
messages: {{serve: outside -> engine}}
machines:
  engine:
    count: E
    starts: {{serve: going}}
    holds: [active exists, active joined]
    phases:
      all:
        within: forever
        states:
          going: {{foreground: [{steps}], leave: {{}}}}
"""


def _row(tmp_path: Path, collectives: int, engines: int) -> World:
    path = tmp_path / "row.yaml"
    path.write_text(ROW.format(steps=", ".join(["{load.reduce: active}"] * collectives)))
    return World(compile_protocol(load(path)), {"engine": engines})


@pytest.mark.parametrize("engines", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("row", [1, 2, 5])
def test_collectives_in_a_row_have_the_states_of_the_closed_form(tmp_path: Path, row: int, engines: int) -> None:
    graph = explore(_row(tmp_path, row, engines), reduced=False)
    assert len(graph.states) == 2 ** (engines + 1) - 1 + (row - 1) * (3**engines - 1)


@pytest.mark.parametrize("engines", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("row", [1, 2, 5])
def test_engines_that_are_alike_leave_the_orbits_of_the_closed_form(tmp_path: Path, row: int, engines: int) -> None:
    graph = explore(_row(tmp_path, row, engines), alone=False)
    assert len(graph.states) == 2 * engines + 1 + (row - 1) * (comb(engines + 2, 2) - 1)


@pytest.mark.parametrize("name", shipped())
def test_shipped_protocols_have_the_golden_counts(name: str) -> None:
    """After a wanted change of a protocol: `ELASTICFSM_GOLDEN=write pytest tests/core/check` writes the file anew."""
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    counted = count(name)
    if os.environ.get("ELASTICFSM_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps({**golden, name: counted}, indent=1) + "\n")
    else:
        assert counted == golden[name]


def count(name: str) -> dict[str, list[int]]:
    """States and transitions of a protocol at one engine a role, fault-free, without and with reductions."""
    compiled = program(name)
    sizes = sizes_of(compiled, "+".join("1" for _ in compiled.roles))
    graphs = {how: explore(World(compiled, sizes), reduced=how == "reduced") for how in ("unreduced", "reduced")}
    return {how: [len(graph.states), graph.transitions] for how, graph in graphs.items()}
