"""The patches of `spec/faulty`: where each is explored, how far, and the table of how that went."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from rich.table import Table

from elasticfsm import language
from elasticfsm.check.plan import CANCEL, Task, tasks
from elasticfsm.check.verdict import Refutation, Run
from elasticfsm.check.world import CALM, Regime
from elasticfsm.compile import Program

AHEAD = (5_000, 100_000)  # a run is looked at here first: most mistakes show early
AT_ENDS = frozenset({"good_end", "terminates", "commits", "service_kept"})  # judged only when all was explored


class Judged(Protocol):
    """A patch and all its runs; `run.Checked` is one."""

    name: str
    patch: language.Patch | None
    runs: list[Run]

    def refuted(self) -> dict[str, tuple[Run, Refutation]]:
        """Every refuted property with the run that gave the shortest trace."""


def tasks_of(patch: language.Patch, program: Program) -> list[Task]:
    """Where a patch is explored: as it says; otherwise without faults and then with a cancel, at growing sizes."""
    roles = len(program.roles)
    sizes = patch.sizes or (["1+1", "2+1", "1+2"] if roles == 2 else ["1", "2", "3"])
    if patch.under is not None:
        return [Task(program, size, regime_of(patch.under)) for size in sizes]
    regimes = {task.regime for task in tasks(program, ["+".join("1" for _ in program.roles)])}
    return [Task(program, size, regime) for regime in (CALM, CANCEL) if regime in regimes for size in sizes]


def regime_of(under: language.Under) -> Regime:
    """The regime that the words of a patch ask for."""
    return Regime(**msgspec.structs.asdict(under))


def limits_of(refuted: str, most: int) -> tuple[int, ...]:
    """How many states are explored until the property must have shown, one try after the other."""
    return (most,) if refuted in AT_ENDS else (*(limit for limit in AHEAD if limit < most), most)


def table(cases: list[Judged]) -> Table:
    """One line for each patch: what it breaks, which property must refute it, and how that went."""
    found = Table(box=None, pad_edge=False)
    for column in ("bug", "base", "expected", "steps", "where"):
        found.add_column(column, no_wrap=True, justify="right" if column == "steps" else "left")
    for column in ("refuted as well", "after"):
        found.add_column(column, overflow="fold")
    for one in as_data(cases):
        base = f"{one['base']} in {one['inside']}" if one["inside"] else one["base"]
        verdict = f"[green]{one['expected']}[/]" if one["ok"] else f"[red]{one['expected']}: not refuted[/]"
        others = ", ".join(name for name in one["refuted"] if name != one["expected"])
        where = f"{one['sizes']}, {one['regime']}"
        found.add_row(one["bug"], base, verdict, str(one["steps"] or "-"), where, others, one["after"])
    return found


def as_data(cases: list[Judged]) -> list[dict[str, Any]]:
    """The table as plain data."""
    return [_row(one, one.patch) for one in cases if one.patch is not None]


def _row(one: Judged, patch: language.Patch) -> dict[str, Any]:
    refuted, last = one.refuted(), one.runs[-1]
    run, found = refuted.get(patch.refuted, (last, None))
    return {
        "bug": patch.patch,
        "says": patch.says,
        "base": patch.of,
        "inside": patch.inside,
        "expected": patch.refuted,
        "ok": found is not None,
        "refuted": sorted(refuted),
        "steps": found.steps if found else 0,
        "lines": len(found.lines) if found else 0,
        "sizes": run.sizes,
        "regime": run.regime,
        "states": run.states,
        "after": patch.after,
    }
