"""The plain and the vectorised explorer are each other's oracle: reduced and unreduced, with and without faults."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import pytest

from elasticfsm.check.rules import load_rules, program_of, regime_of
from elasticfsm.check.world import Regime, World, sizes_of
from elasticfsm.compile import compile_protocol, program
from elasticfsm.patch import load_patch, patched, shipped_patches
from elasticfsm.protocol import load, shipped

from .conftest import DEEP, Agree

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
FAULTS = {
    "a crash": Regime(crashes=1, expiry="arbitrary"),
    "a loss": Regime(losses=1),
    "a duplicate and a crash": Regime(duplicates=1, crashes=1),
    "a failure": Regime(failures=1),
    "asked again": Regime(again=True),
}
BOTH = pytest.mark.parametrize("reduced", [True, False], ids=["reduced", "unreduced"])


@BOTH
@pytest.mark.parametrize("engines", [1, 4, 6])
@pytest.mark.parametrize("row", [1, 5])
def test_collectives_in_a_row_have_the_states_of_the_closed_form(
    tmp_path: Path, agree: Agree, row: int, engines: int, reduced: bool
) -> None:
    path = tmp_path / "row.yaml"
    path.write_text(ROW.format(steps=", ".join(["{load.reduce: active}"] * row)))
    graph = agree(compile_protocol(load(path)), str(engines), reduced=reduced)
    if not reduced:
        assert len(graph.states) == 2 ** (engines + 1) - 1 + (row - 1) * (3**engines - 1)


def test_engines_that_are_alike_leave_the_orbits_of_the_closed_form(tmp_path: Path) -> None:
    from elasticfsm.check.vector.explore import explore

    path = tmp_path / "row.yaml"
    path.write_text(ROW.format(steps=", ".join(["{load.reduce: active}"] * 5)))
    graph = explore(World(compile_protocol(load(path)), {"engine": 6}), alone=False)
    assert len(graph.states) == 2 * 6 + 1 + 4 * (comb(8, 2) - 1)


@BOTH
@pytest.mark.parametrize("cancel", [False, True], ids=["calm", "cancel"])
def test_mistakes_in_the_small_protocol(
    mistake: str, mistakes: Any, grow: Any, agree: Agree, cancel: bool, reduced: bool
) -> None:
    edits, how = mistakes[mistake]
    whole = grow(*edits, **({"of": how["of"]} if "of" in how else {}))
    regime = how.get("regime", Regime())._replace(cancel=cancel)
    agree(whole, "+".join("1" for _ in whole.roles), regime, reduced, limit=250)


@BOTH
@pytest.mark.parametrize("name", [name for name in shipped() if not program(name).coordinator])
def test_shipped_protocols_without_an_operation(name: str, agree: Agree, reduced: bool) -> None:
    for size in "123":
        agree(program(name), size, reduced=reduced, limit=3_000)


@BOTH
@pytest.mark.parametrize("cancel", [False, True], ids=["calm", "cancel"])
@pytest.mark.parametrize("name", [name for name in shipped() if program(name).coordinator])
def test_shipped_operations(name: str, agree: Agree, cancel: bool, reduced: bool) -> None:
    agree(program(name), "1+1", Regime(cancel=cancel), reduced, limit=600)


@pytest.mark.parametrize("path", shipped_patches(), ids=lambda path: path.stem)
def test_faulty_protocols(path: Path, agree: Agree) -> None:
    patch, document = load_patch(path)
    whole = patched(patch, document)
    agree(whole, "+".join("1" for _ in whole.roles), limit=120)


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rule", ["bit", "confirm"])
def test_rules_for_the_switch_with_faults(rule: str, fault: str, agree: Agree, reduced: bool) -> None:
    rules, document = load_rules()
    agree(program_of(rule, rules, document), "1+1", FAULTS[fault], reduced, limit=600)


@pytest.mark.skipif(not DEEP, reason="make check-deep")
@pytest.mark.parametrize("crashes", [0, 1])
@pytest.mark.parametrize("rule", load_rules()[0])
def test_every_rule_for_the_switch(rule: str, crashes: int, agree: Agree) -> None:
    rules, document = load_rules()
    agree(program_of(rule, rules, document), "2+1" if not crashes else "1+1", regime_of(rule, rules, crashes))


@pytest.mark.skipif(not DEEP, reason="make check-deep")
@pytest.mark.parametrize("sizes", ["2+1", "1+2", "2+2"])
@pytest.mark.parametrize("cancel", [False, True], ids=["calm", "cancel"])
@pytest.mark.parametrize("name", [name for name in shipped() if program(name).coordinator])
def test_shipped_operations_with_more_engines(name: str, sizes: str, cancel: bool, agree: Agree) -> None:
    if cancel and sizes == "2+2":
        pytest.skip("more states than fit into the plain explorer's memory")
    agree(program(name), sizes, Regime(cancel=cancel))


def test_sizes_are_those_that_were_asked_for() -> None:
    assert sizes_of(program("scale_up"), "2+1") == {"existing": 2, "new": 1}
