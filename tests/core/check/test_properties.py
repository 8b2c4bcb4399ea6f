"""Each property is refuted by a small mistake, and the protocol without the mistake holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticfsm.check.world import Regime

PAUSE = Path(__file__).parent / "pause.yaml"


def test_a_mistake_is_refuted_by_the_property_that_it_breaks(mistake: str, mistakes: Any, explored: Any) -> None:
    name, (edits, how) = mistake, mistakes[mistake]
    found = explored(*edits, **how)
    assert name in found.refuted
    assert found.refuted[name].lines[-1]


@pytest.mark.parametrize("cancel", [False, True])
def test_the_protocol_without_a_mistake_holds(explored: Any, cancel: bool) -> None:
    found = explored(sizes="2+1", cancel=cancel)
    assert found.complete
    assert not found.refuted


@pytest.mark.parametrize("sizes", ["1", "2"])
def test_an_engine_that_ends_an_operation_before_it_serves_again_breaks_nothing_but_the_service(
    explored: Any, sizes: str
) -> None:
    how = {"of": PAUSE, "sizes": sizes, "regime": Regime(expiry="arbitrary")}
    assert not explored(**how).refuted
    hasty = explored({"at": "engine.working", "sends": ["stop", "serve"]}, **how)
    assert set(hasty.refuted) == {"service_kept"}


def test_every_property_has_a_mistake_that_it_refutes(mistakes: Any) -> None:
    from elasticfsm.steps import PROPERTIES

    assert set(PROPERTIES) == set(mistakes)


@pytest.mark.parametrize(
    ("of", "edit"),
    [
        ("serving", {"at": "engine.idle", "leave": {"received request": "idle"}}),
        ("rebalance", {"at": "main.resting", "leave": {"received due": "resting"}}),
        ("rebalance", {"at": "main.counting", "leave": {"agreed spread": "resting"}}),
    ],
)
@pytest.mark.parametrize("sizes", ["1", "2"])
@pytest.mark.parametrize("engine", ["plain", "vector"])
def test_a_wish_that_nobody_listens_to_is_refuted_by_nothing_else(
    explored: Any, of: str, edit: dict[str, Any], sizes: str, engine: str
) -> None:
    found = explored(edit, of=of, sizes=sizes, engine=engine)
    assert set(found.refuted) == {"wishes_met"}
    assert not explored(of=of, sizes=sizes, engine=engine).refuted


def test_a_protocol_that_commits_without_asking_splits(explored: Any) -> None:
    """Must-fail control: the coordinator aborts by its own decision, the engines commit by theirs."""
    hasty = {"at": "existing.settled", "leave": {"done": "retiring"}}
    found = explored(hasty, {"at": "coordinator.voting", "leave": {"received cancel": "aborted"}}, cancel=True)
    assert "agreement" in found.refuted


def test_a_protocol_that_always_aborts_does_not_commit(explored: Any) -> None:
    """Must-fail control: nothing goes wrong, and nothing is ever committed."""
    found = explored({"at": "coordinator.planning", "leave": {"done": "asking"}})
    assert set(found.refuted) == {"commits"}


def test_a_violated_contract_does_not_end_the_search(explored: Any) -> None:
    found = explored({"at": "existing.joining", "move": "groups.join: standby", "before": "placement.share: standby"})
    assert {"contracts", "placement", "collective_order", "no_deadlock"} <= set(found.refuted)


def test_too_many_states_are_inconclusive(explored: Any) -> None:
    found = explored(limit=50)
    assert found.verdict("no_deadlock") == "inconclusive"
