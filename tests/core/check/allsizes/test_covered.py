"""Whatever an explorer reaches at some size is among the views of every size."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from elasticfsm.check.allsizes.prove import explored
from elasticfsm.check.allsizes.views import Views
from elasticfsm.check.world import Regime
from elasticfsm.compile import Program, program

from ..conftest import broken
from .covered import missed

CALM, CANCEL = Regime(), Regime(cancel=True)
GROW = Path(__file__).parent.parent / "grow.yaml"
deep = pytest.mark.skipif(not os.environ.get("ELASTICFSM_DEEP"), reason="make check-deep")
at = pytest.mark.parametrize


def compiled(of: str) -> Program:
    return broken(GROW) if of == "grow" else program(of)


@cache
def unreduced(of: str) -> Views:
    return explored(compiled(of), CALM, reduced=False)[0]


@at(
    "of, sizes, regime, limit",
    [
        ("serving", "2", CALM, None),
        ("serving", "3", CALM, None),
        ("serving", "4", CALM, 5_000),
        ("rebalance", "2", CALM, None),
        ("rebalance", "3", CALM, 3_000),
        ("grow", "1+1", CALM, None),
        ("grow", "2+1", CALM, 4_000),
    ],
)
def test_every_state_without_any_reduction_is_covered(of: str, sizes: str, regime: Regime, limit: int | None) -> None:
    views = unreduced(of)
    states, lost = missed(views, compiled(of), sizes, regime, reduced=False, limit=limit)
    assert states > 10
    assert not lost


@at("of, sizes", [("rebalance", "3"), ("grow", "2+1"), ("grow", "2+2")])
def test_every_reduced_state_is_covered(of: str, sizes: str) -> None:
    views, _ = explored(compiled(of), CALM)
    states, lost = missed(views, compiled(of), sizes, CALM, reduced=True)
    assert states > 10
    assert not lost


@deep
@at("sizes", ["1+1", "2+1", "1+2", "2+2", "3+1"])
@at("of", ["scale_up", "scale_down"])
def test_every_reduced_state_of_larger_sizes_is_covered(of: str, sizes: str) -> None:
    for prompt in (True, False):
        views, _ = explored(program(of), CALM, prompt=prompt)
        states, lost = missed(views, program(of), sizes, CALM, reduced=True)
        assert states > 1000
        assert not lost


@deep
@at("sizes", ["1+1", "2+1"])
def test_every_state_with_a_cancel_is_covered(sizes: str) -> None:
    views, _ = explored(broken(GROW), CANCEL)
    states, lost = missed(views, broken(GROW), sizes, CANCEL, reduced=True)
    assert states > 10
    assert not lost


def test_a_view_that_is_taken_away_is_missed() -> None:
    """The comparison can fail: without one view that a system shows, states are lost."""
    views, _ = explored(program("serving"), CALM, reduced=False)
    del views.found.parents[next(iter(views.found.parents))]
    assert missed(views, program("serving"), "2", CALM, reduced=False)[1]
