"""What is proved for every size, and that nothing is proved which an explorer refutes."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from elasticfsm.check.allsizes.prove import NOT_PROVED, PROVED, Proof, prove
from elasticfsm.check.run import Checked
from elasticfsm.check.verdict import run
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.cli import app
from elasticfsm.compile import Program, program
from elasticfsm.errors import SpecError
from elasticfsm.patch import load_patch, patched, shipped_patches
from elasticfsm.protocol import load

from ..conftest import MISTAKES, broken

CALM, CANCEL = Regime(), Regime(cancel=True)
GROW = Path(__file__).parent.parent / "grow.yaml"
DEEP = bool(os.environ.get("ELASTICFSM_DEEP"))
SEEDS = range(400 if DEEP else 12)
deep = pytest.mark.skipif(not DEEP, reason="make check-deep")
ORDERS = {"no_deadlock", "collective_order", "membership", "contracts", "no_use_after_destroy", "placement"}
ENDS = {"agreement", "no_leak", "no_transfer_at_switch"}


def wrongly(proof: Proof, whole: Program, sizes: str, regime: Regime) -> set[str]:
    """The properties that are proved for all sizes and refuted at this one."""
    refuted = run(whole, sizes_of(whole, sizes), regime, limit=30_000).refuted
    return {name for name in refuted if proof.verdicts.get(name) == PROVED}


@pytest.mark.parametrize(
    "of, also",
    [
        ("serving", set()),
        ("rebalance", set()),
        ("scale_up", ENDS),
        ("scale_down", {*ENDS, "coverage", "requests_kept"}),
    ],
)
def test_shipped_protocols_are_proved_for_all_sizes_step_loop_included(of: str, also: set[str]) -> None:
    proof = prove(program(of))
    assert proof.verdicts == dict.fromkeys(ORDERS | also, PROVED)


def test_engines_that_join_without_a_vote_are_stuck_at_some_size() -> None:
    """No size 1+1 shows it: with one old engine nobody is left behind in a forward step."""
    whole = patched(*load_patch("kb04"))
    assert not run(whole, sizes_of(whole, "1+1"), CALM).refuted
    proof = prove(whole)
    assert {name for name, verdict in proof.verdicts.items() if verdict != PROVED} == {"no_deadlock"}
    told = "\n".join(proof.told["no_deadlock"])
    assert "existing:stilling, serving.engine:stepping in step.forward" in told
    assert "existing:joining in placement.share" in told


def test_mistakes_are_not_proved(mistake: str) -> None:
    edits, how = MISTAKES[mistake]
    regime = how.get("regime", Regime(cancel=how.get("cancel", False)))
    large = how.get("of", GROW) != GROW or mistake == "exactly_once"
    if regime != CALM or (large and not DEEP):
        pytest.skip("needs a fault or a cancel, or is looked at by make check-deep")
    whole = broken(how.get("of", GROW), *edits)
    proof = prove(whole, regime)
    assert not wrongly(proof, whole, how.get("sizes", "1+1" if len(whole.roles) == 2 else "1"), regime)
    if mistake in proof.verdicts:
        assert proof.verdicts[mistake] != PROVED


@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_explorer_refutes_after_random_edits_is_not_proved(seed: int) -> None:
    random, lists = Random(seed), _lists()
    where, steps = random.choice(lists)
    step = random.choice(steps)
    other = random.choice([one for one in steps if one != step])
    edit = random.choice([{"drop": step}, {"move": step, "before": other}, {"move": step, "after": other}])
    try:
        whole = broken(GROW, {"at": where, **edit})
    except SpecError:
        pytest.skip("this edit cannot be made")
    proof = prove(whole)
    for sizes in ("1+1", "2+1"):
        assert not wrongly(proof, whole, sizes, CALM)


def _lists() -> list[tuple[str, list[Any]]]:
    """Every list of at least two different steps: where it stands, and its steps."""
    return [
        (f"{role}.{state.name}", [str(step) for step in state.steps])
        for role, machine in load(GROW).machines.items()
        for state in machine.states.values()
        if len(set(state.steps)) > 1
    ]


@deep
@pytest.mark.parametrize("path", shipped_patches(), ids=lambda path: path.stem)
def test_faulty_protocols_are_not_proved_where_they_are_refuted(path: Path) -> None:
    whole = patched(*load_patch(path))
    proof = prove(whole)
    for sizes in ("1+1", "2+1") if len(whole.roles) == 2 else ("1", "2"):
        assert not wrongly(proof, whole, sizes, CALM)


def test_a_single_engine_is_looked_at_too() -> None:
    """A protocol of one role has no view of one engine: what it refutes by itself is not proved."""
    whole = broken("serving", {"at": "engine.stepping", "drop": "step.forward: active"})
    proof = prove(whole)
    assert proof.verdicts["contracts"] == NOT_PROVED
    assert not wrongly(proof, whole, "1", CALM)


def test_too_many_views_are_inconclusive() -> None:
    proof = prove(broken(GROW), limit=100)
    assert not proof.complete
    assert PROVED not in proof.verdicts.values()


def test_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="no proof for all sizes"):
        prove(broken(GROW), Regime(crashes=1))


def test_the_table_says_per_property_what_is_proved_for_all_sizes() -> None:
    whole = broken(GROW)
    one = Checked("grow", whole, proofs=[prove(whole)], runs=[run(whole, sizes_of(whole, "2+1"), CALM)])
    told = one.verdicts()
    assert told["no_deadlock"] == "proved for all sizes (fault-free)"
    assert told["good_end"] == "proved up to 2+1 (fault-free)"
    assert one.ok


def test_the_command_proves_and_explores_nothing() -> None:
    said = CliRunner().invoke(app, ["check", "--all-sizes", "serving", str(GROW)])
    assert said.exit_code == 0, said.output
    assert "proved for all sizes" in said.output
    assert "proved up to" not in said.output
    refused = CliRunner().invoke(app, ["check", "--all-sizes", "--crash", "1", "serving"])
    assert refused.exit_code != 0
