"""What the checker explored, walked on the real objects; an interpreter that is broken on purpose is noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elasticfsm.check.conform import Differs, conform
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.compile import compile_protocol, program
from elasticfsm.mailroom import Mailroom
from elasticfsm.monitor import Monitor
from elasticfsm.protocol import load
from elasticfsm.runtime.interpreter import Interpreter, engine, lists
from elasticfsm.seat import Seat
from elasticfsm.testing.stage import gates

CANCEL = Regime(cancel=True)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Steps are told to fail here; the interpreter need not warn of it."""
    log = logging.getLogger("elasticfsm.runtime.interpreter")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def walk(name: str, sizes: str, regime: Regime = Regime(), **how: Any) -> Any:  # noqa: B008 - a tuple of constants
    compiled = program(name)
    return conform(compiled, sizes_of(compiled, sizes), regime, **how)


@pytest.mark.parametrize(("name", "sizes"), [("serving", "2"), ("serving", "3"), ("rebalance", "1")])
def test_every_edge_that_was_explored_leads_to_the_same_state_on_the_real_objects(name: str, sizes: str) -> None:
    found = walk(name, sizes)
    assert found.edges > 5
    assert found.within is None
    assert found.steps >= found.edges


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scale_up", "scale_down"])
def test_edges_near_the_start_of_an_operation_lead_to_the_same_state(name: str) -> None:
    found = walk(name, "1+1", CANCEL, limit=60)
    assert found.edges > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scale_up", "scale_down"])
def test_walks_at_random_through_all_interleavings_lead_to_the_same_states(name: str) -> None:
    found = walk(name, "2+1", CANCEL, steps=0, walks=3, length=500)
    assert found.random_steps == 3 * 500


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scale_up", "scale_down"])
@pytest.mark.parametrize(
    "regime", [Regime(crashes=1, expiry="arbitrary", restart=True), Regime(cancel=True, losses=2, duplicates=2)]
)
def test_walks_with_faults_lead_to_the_same_states(name: str, regime: Regime) -> None:
    found = walk(name, "2+1", regime, steps=0, walks=5, length=500)
    assert found.random_steps > 500


def _nothing(*_: object) -> None:
    return None


def _move(seat: Seat, trigger: str, guard: str) -> None:
    """As it is, but the running list is not withdrawn."""
    before = seat.state
    seat.machine.fire(trigger)
    seat._enter(before, guard)


def _backwards(job: Any, *more: Any) -> Any:
    return lists.run_list(job._replace(steps=job.steps[::-1]), *more)


# What is broken: where, the name, and what stands there instead.
BROKEN: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "full votes are not acted on": (Seat, "agree", lambda self, full: False),
    "wakes of a wave that has ended are taken": (Mailroom, "next_wave", _nothing),
    "a list that was left is not withdrawn": (Seat, "_move", _move),
    "a forward step begins while another machine is in a foreground state": (Seat, "blocks", lambda self: False),
    "messages inside an engine are lost": (Mailroom, "_route", lambda self, route, program, operation: False),
    "the steps of a list run backwards": (engine, "run_list", _backwards),
    "the monitor is not told which step runs": (Monitor, "begin_step", _nothing),
    "votes are cast by nobody": (Interpreter, "votes_cast", lambda self: frozenset()),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_an_interpreter_that_is_broken_on_purpose_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = BROKEN[what]
    monkeypatch.setattr(where, name, instead)
    monkeypatch.setattr(gates, "PATIENCE", 2.0)  # a thread that is stuck is found sooner
    with pytest.raises(Differs) as error:
        walk("scale_up", "2+1", CANCEL, steps=0, walks=10, length=600)
        walk("serving", "2")
    assert "micro-steps, the last of them" in str(error.value)


@pytest.mark.parametrize(
    ("path", "sizes"),
    [("variants/kb05/merged", "1+1"), ("variants/switch/base", "1+1"), ("variants/vllm-0.33/scale_up", "1+1")],
)
def test_protocols_of_others_run_on_the_same_interpreter(path: str, sizes: str) -> None:
    compiled = compile_protocol(load(path))
    found = conform(compiled, sizes_of(compiled, sizes), limit=60, walks=1, length=300)
    assert found.edges > 10
