"""Every reduction against the unreduced run: the same properties refuted, the same ends reached."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from elasticfsm.check.world import Regime
from elasticfsm.compile import program
from elasticfsm.patch import load_patch, patched, shipped_patches

from .differential import BUSY, CALM, CANCEL, EARLIEST, STILL, composed, same

GROW = Path(__file__).parent / "grow.yaml"
SHIPPED = ("scale_up", "scale_down")
LARGE = ("service_kept", "one_operation", "in_doubt", "exactly_once", "agreement")  # take long with two engines
at = pytest.mark.parametrize


@at("cancel", [False, True])
def test_mistakes_are_found_alike_with_and_without_reductions(mistake: str, mistakes: Any, cancel: bool) -> None:
    edits, how = mistakes[mistake]
    of = how.get("of", GROW)
    regime = how.get("regime", Regime())._replace(cancel=cancel)
    over = STILL if of in SHIPPED and cancel else ()
    sizes = how.get("sizes", "1+1")
    same(composed(of, *edits, over=over), sizes, regime, large=of in SHIPPED or (cancel and sizes == "2+1"))


@pytest.mark.slow
def test_mistakes_are_found_alike_with_two_engines(mistake: str, mistakes: Any) -> None:
    if mistake in LARGE and not os.environ.get("ELASTICFSM_DEEP"):
        pytest.skip("make check-deep")
    edits, how = mistakes[mistake]
    of = how.get("of", GROW)
    sizes = "2+1" if len(how.get("sizes", "1+1")) > 1 else "2"
    over = STILL if of in SHIPPED else ()
    same(composed(of, *edits, over=over), sizes, how.get("regime", CALM), large=of in SHIPPED)


@at("cancel", [False, True])
def test_the_small_protocol_has_the_same_ends_with_and_without_reductions(cancel: bool) -> None:
    same(composed(GROW), "1+1", Regime(cancel=cancel))
    same(composed(GROW), "2+1", Regime(cancel=cancel), large=True)


@pytest.mark.slow
@at("name, sizes", [("serving", "2"), ("serving", "3"), ("rebalance", "2")])
def test_machines_that_run_always_rest_alike_with_and_without_reductions(name: str, sizes: str) -> None:
    same(program(name), sizes, CALM)


@pytest.mark.slow
@at("name", SHIPPED)
def test_shipped_protocols_have_the_same_ends_with_and_without_reductions(name: str) -> None:
    same(program(name), "1+1", CALM, large=True)


@pytest.mark.slow
@at("name, over", [("scale_up", STILL), ("scale_down", STILL)])
def test_cancelled_protocols_have_the_same_ends_with_and_without_reductions(name: str, over: tuple[str, ...]) -> None:
    same(composed(name, over=over), "1+1", CANCEL, large=True)


@pytest.mark.slow
@at("name, over, regime", [("scale_up", STILL, CALM), ("scale_down", STILL, CALM), ("scale_up", BUSY, CANCEL)])
def test_with_two_engines_everything_is_alike_over_simpler_experts(
    name: str, over: tuple[str, ...], regime: Any
) -> None:
    same(composed(name, over=over), "2+1", regime, large=True)


@at("name", ["vllm-0.33/scale_down", "vllm/down"])
def test_a_member_that_is_still_leaving_is_seen_with_and_without_reductions(name: str) -> None:
    """Leaving a collective explored alone once hid that the others had switched and destroyed the old groups."""
    same(program(f"variants/{name}"), "1+1", CALM, large=True)


@pytest.mark.slow
@at("path", [path for path in shipped_patches() if path.stem in EARLIEST], ids=lambda path: path.stem)
def test_faulty_protocols_are_refuted_alike_with_and_without_reductions(path: Any) -> None:
    same(patched(*load_patch(path)), "1+1", CALM, large=True)
