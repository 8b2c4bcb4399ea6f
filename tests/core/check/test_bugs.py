"""docs/bugs.md lists every public bug with its patch and with the test that provokes it in the running system."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from elasticfsm.check.faulty import regime_of
from elasticfsm.check.verdict import run
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.compile import program
from elasticfsm.language import Under
from elasticfsm.patch import load_patch, shipped_patches

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "bugs.md"
PROVOKED = ROOT / "tests" / "runtime" / "known_bugs"
BEGIN, END = "<!-- table -->\n", "<!-- end -->\n"
KNOWN = 45  # public reports that the protocols were made after


def table() -> str:
    """The table as it must stand in the page."""
    lines = [
        "| bug | the wrong protocol | base | property | when | after | provoked by |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in shipped_patches():
        patch, _ = load_patch(path)
        base = f"{patch.of} in {patch.inside}" if patch.inside else patch.of
        when = _when(patch.under) if patch.under else ""
        row = (patch.patch, patch.says, base, f"`{patch.refuted}`", when, patch.after, _provoked(patch.patch))
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _when(under: Under) -> str:
    told = {name: getattr(under, name) for name in under.__struct_fields__}
    return ", ".join(
        name if value is True else f"{name} {value}"
        for name, value in told.items()
        if value not in (False, 0, "off", "concurrent")
    )


def _provoked(bug: str) -> str:
    return ", ".join(f"`{path.name}`" for path in sorted(PROVOKED.glob(f"test_{bug[:4]}_*.py")))


def test_the_page_of_bugs_is_that_of_the_files() -> None:
    """After a change: `ELASTICFSM_GOLDEN=write pytest tests/core/check/test_bugs.py` writes the table anew."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    wanted = f"{head}{BEGIN}{table()}{END}{tail}"
    if os.environ.get("ELASTICFSM_GOLDEN") == "write":
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted


def test_every_public_bug_has_a_patch() -> None:
    numbers = {int(re.findall(r"\d+", path.stem)[0]) for path in shipped_patches()}
    assert numbers == set(range(1, KNOWN + 1))


def test_a_patch_bears_the_name_of_its_file_and_says_after_what_it_is_made() -> None:
    for path in shipped_patches():
        patch, _ = load_patch(path)
        assert patch.patch == path.stem
        assert patch.says
        assert patch.after


UNDER = sorted(
    {
        (patch.inside or patch.of, patch.inside and patch.of, regime_of(patch.under))
        for patch, _ in map(load_patch, shipped_patches())
        if patch.under is not None and not patch.under.cancel
    }
)


@pytest.mark.parametrize(("name", "part", "regime"), UNDER, ids=[f"{name}, {regime}" for name, _, regime in UNDER])
def test_a_base_holds_where_its_patches_are_refuted(name: str, part: str, regime: Regime) -> None:
    whole = program(name)
    found = run(whole, sizes_of(whole, "+".join("1" for _ in whole.roles)), regime)
    assert found.complete
    assert not found.refuted
