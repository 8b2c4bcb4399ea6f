"""Every reduction against runs with fewer of them, at sizes that take minutes: part of `make check-deep`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from elasticfsm.check.world import Regime
from elasticfsm.compile import program
from elasticfsm.patch import load_patch, patched, shipped_patches

from .differential import BUSY, CALM, CANCEL, EARLIEST, composed, same

if not os.environ.get("ELASTICFSM_DEEP"):
    pytest.skip("takes minutes: make check-deep", allow_module_level=True)

SYMMETRY = {"alone": False}  # and forgetting, but no move is explored alone
at = pytest.mark.parametrize


@at("path", [path for path in shipped_patches() if path.stem not in EARLIEST], ids=lambda path: path.stem)
def test_every_faulty_protocol_is_refuted_alike_with_and_without_reductions(path: Any) -> None:
    compiled = patched(*load_patch(path))
    same(compiled, "+".join("1" for _ in compiled.roles), CALM, large=True)


def test_rebalances_of_three_engines_rest_alike_without_reductions() -> None:
    same(program("rebalance"), "3", CALM)


def test_a_cancelled_growth_has_the_same_ends_with_and_without_reductions() -> None:
    same(program("scale_up"), "1+1", CANCEL, large=True)


def test_growth_with_two_engines_is_alike_without_reductions() -> None:
    same(program("scale_up"), "2+1", CALM, large=True)


@at("name, sizes, regime", [("scale_down", "2+1", CALM), ("scale_down", "1+1", CANCEL), ("scale_up", "1+2", CALM)])
def test_moves_alone_change_nothing_beside_symmetry(name: str, sizes: str, regime: Regime) -> None:
    same(program(name), sizes, regime, SYMMETRY, large=True)


def test_a_cancelled_shrinking_of_three_is_alike_over_simpler_experts() -> None:
    same(composed("scale_down", over=BUSY), "2+1", CANCEL, SYMMETRY, large=True)
