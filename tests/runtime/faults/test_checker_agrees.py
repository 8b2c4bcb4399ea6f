"""What rules allow for a fault, and what runs have shown, is what the checker finds in the model for the same fault."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from elasticfsm.runtime.faults.cells import Cell, all_cells
from elasticfsm.runtime.faults.checked import FAULTS, verdict
from elasticfsm.runtime.faults.rules import allowed
from elasticfsm.runtime.faults.table import known

deep = pytest.mark.skipif(not os.environ.get("ELASTICFSM_DEEP"), reason="make check-deep")
LATE = ("stop", "delay", "late")
DOCS = Path(__file__).parents[3] / "docs"


def compared(kinds: Collection[str]) -> dict[Cell, frozenset[str]]:
    """The cells of these kinds of which the checker has a verdict."""
    found = {cell: verdict(cell) for cell in all_cells() if cell.kind in kinds}
    return {cell: words for cell, words in found.items() if words}


def wrong(kinds: Collection[str]) -> list[str]:
    """Cells whose rule, or whose recorded outcome, is none of the checker's endings."""
    seen = known(DOCS)
    found = []
    for cell, words in compared(kinds).items():
        shown = seen[cell.name].outcomes if cell.name in seen and not seen[cell.name].problems else []
        if not {*allowed(cell), *shown} <= words:
            found.append(f"{cell.name}: allowed {allowed(cell)}, shown {shown}, the checker says {sorted(words)}")
    return found


def test_what_is_only_late_ends_as_the_checker_says() -> None:
    assert len(compared(LATE)) > 100
    assert wrong(LATE) == []


@deep
@pytest.mark.parametrize("kind", sorted(set(FAULTS) - set(LATE)))
def test_every_other_fault_ends_as_the_checker_says(kind: str) -> None:
    assert compared([kind])
    assert wrong([kind]) == []
