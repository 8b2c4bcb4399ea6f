"""vLLM's protocols in both versions: the verdicts that docs/vllm.md tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticfsm.check.faulty import tasks_of
from elasticfsm.check.verdict import Run, run
from elasticfsm.check.world import CALM, Regime, sizes_of
from elasticfsm.compile import program
from elasticfsm.patch import load_patch, patched
from elasticfsm.steps import SPEC

HAZARDS = sorted((SPEC / "variants/vllm/hazards").glob("*.yaml"))


def judged(name: str, sizes: str, regime: Regime = CALM) -> Run:
    whole = program(f"variants/vllm/{name}")
    return run(whole, sizes_of(whole, sizes), regime, engine="plain")


@pytest.mark.parametrize(("name", "refuted"), [("up", set()), ("down", {"no_use_after_destroy"})])
def test_0_33_holds_as_long_as_nothing_goes_wrong(name: str, refuted: set[str]) -> None:
    """But for one thing, that is assumed: a member may still be leaving the reshuffle when the old groups end."""
    found = judged(name, "1+1")
    assert found.complete
    assert set(found.refuted) == refuted


@pytest.mark.parametrize("name", ["up", "down"])
def test_0_33_does_not_survive_the_failure_of_one_step(name: str) -> None:
    assert "terminates" in judged(name, "1+1", Regime(failures=1)).refuted


def test_the_two_staged_barrier_needs_its_timeout() -> None:
    """Who learnt first waits for who is still in a step, and the step waits for the first: only the 5 s part them."""
    assert "no_deadlock" in judged("first", "2+1").refuted


def test_the_two_staged_barrier_with_its_timeout_lets_engines_miss_each_other() -> None:
    found = judged("first", "2+1", Regime(expiry="arbitrary")).refuted["terminates"]
    assert any("barrier.look: existing = not_all" in line for line in found.lines)
    assert any("existing1: first arriving" in line for line in found.lines)


def test_one_engine_alone_misses_nobody() -> None:
    assert not judged("first", "1+1").refuted


@pytest.mark.parametrize("path", HAZARDS, ids=lambda path: path.stem)
def test_without_the_rule_that_prevents_it_a_hazard_is_real(path: Path) -> None:
    patch, document = load_patch(path)
    whole = patched(patch, document)
    runs = [run(task.program, task.engines, task.regime, engine="plain") for task in tasks_of(patch, whole)[:1]]
    assert patch.refuted in runs[0].refuted
